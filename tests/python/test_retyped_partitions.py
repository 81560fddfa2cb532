"""Partition columns that got another type: values of removed files in a checkpoint need not be of the new type.

PROTOCOL.md: "Action Reconciliation".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from sample import log_actions

import deltic

LONGS = pa.table({"p": pa.array([1, 2], pa.int64()), "v": [10, 20]})


def overwrite(uri: str) -> None:
    deltic.write(uri, LONGS, mode="overwrite", schema_mode="overwrite")


def replace(uri: str) -> None:
    deltic.create(uri, LONGS.schema, partition_by="p", mode="replace")
    deltic.write(uri, LONGS)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("change", [overwrite, replace])
def test_removed_files_do_not_matter(uri: str, policy: str, change: Callable[[str], None]) -> None:
    properties = {"delta.checkpointPolicy": policy}
    deltic.write(uri, pa.table({"p": ["a", "b"], "v": [1, 2]}), partition_by="p", properties=properties)
    deltic.Table(uri).checkpoint()
    change(uri)
    table = deltic.Table(uri)
    for filter, values in (("p = 1", [10]), ("p > 1", [20]), ("p IS NULL", []), ("p = 1 OR v = 20", [10, 20])):
        scan = table.scan(filter=filter)
        assert sorted(row["v"] for row in scan.to_arrow().to_pylist()) == values, filter
        assert scan.count() == len(values)
    plan = table.plan(filter="p = 2")
    assert (plan.files_kept, plan.files_total) == (1, 2)
    assert plan.to_arrow()["partition"].to_pylist() == [{"p": 2}]
    assert sorted(file["p"] for file in table.plan().to_arrow()["partition"].to_pylist()) == [1, 2]
    table.update({"v": "v + 1"}, "p = 2")
    table.delete("p = 1")
    assert table.scan().to_arrow().to_pylist() == [{"p": 2, "v": 21}]


def test_a_restore_makes_the_type_narrower(uri: str) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    narrow = pa.table({"p": pa.array([7], pa.int32()), "v": [1]})
    deltic.write(uri, narrow, partition_by="p", properties=properties)
    table = deltic.Table(uri)
    table.alter_column("p", type="long")
    deltic.write(table, pa.table({"p": [2**40], "v": [2]}))
    table.checkpoint()
    table.restore(0)
    assert deltic.Table(uri).scan(filter="p = 7").to_arrow().to_pylist() == [{"p": 7, "v": 1}]
    assert deltic.Table(uri).scan(filter="p > 7").count() == 0
    deltic.write(uri, narrow, mode="overwrite", replace_where="p = 7")
    assert deltic.Table(uri).scan().count() == 1


def test_a_live_file_must_have_a_value_of_the_type(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a"], "v": [1]}), partition_by="p")
    deltic.Table(uri).checkpoint()
    metadata = next(action for action in log_actions(uri, 0) if "metaData" in action)
    metadata["metaData"]["schemaString"] = metadata["metaData"]["schemaString"].replace(
        '"name":"p","nullable":true,"type":"string"', '"name":"p","nullable":true,"type":"long"'
    )
    (Path(uri) / "_delta_log" / f"{1:020}.json").write_text(json.dumps(metadata) + "\n")
    with pytest.raises(deltic.CorruptTableError, match=r"`p`.*`a` is not a long"):
        deltic.Table(uri).scan(filter="p = 1").to_arrow()
    with pytest.raises(deltic.CorruptTableError, match="`p`"):
        deltic.Table(uri).plan().to_arrow()


def test_a_missing_value_is_not_that_of_another_column(uri: str) -> None:
    """The logical name of `b` is the physical name of `a`: a file without a value of `b` has NULL there."""
    deltic.write(uri, pa.table({"a": ["x"], "b": ["y"], "v": [1]}), partition_by=["a", "b"])
    table = deltic.Table(uri)
    table.set_properties({"delta.columnMapping.mode": "name"})
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        table.rename_column(old, new)
    add = next(action["add"] for action in log_actions(uri, 0) if "add" in action)
    remove = {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}
    actions = [remove, {"add": add | {"partitionValues": {"a": "x"}}}]
    version = table.snapshot().version + 1
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (Path(uri) / "_delta_log" / f"{version:020}.json").write_text(text)

    def check() -> None:
        table = deltic.Table(uri)
        assert table.scan().to_arrow().to_pylist() == [{"b": "x", "a": None, "v": 1}]
        assert [table.scan(filter=filter).count() for filter in ("a IS NULL", "a = 'x'", "b = 'x'")] == [1, 0, 1]

    check()
    deltic.Table(uri).checkpoint()
    check()
    deltic.Table(uri).update({"v": "v + 0"}, "v = 1")
    check()
