"""Writes whose columns differ from the table's: the schema changes in the same commit, or the write is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sample import log_actions

import deltic


def files(uri: str) -> list[Path]:
    return sorted(path for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts)


def rows(uri: str, by: str) -> list[dict[str, Any]]:
    return sorted(deltic.Table(uri).scan().to_arrow().to_pylist(), key=lambda row: row[by])


def fields(uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(deltic.Table(uri).snapshot().metadata["schemaString"])["fields"]
    return found


def kinds(uri: str, version: int) -> list[str]:
    return [next(iter(action)) for action in log_actions(uri, version)]


def test_new_columns_come_last_and_are_null_in_older_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1], "s": [{"a": 1}], "l": [[{"x": 1}]]}))
    wider = pa.table({"z": ["new"], "S": [{"b": 2.5, "A": 2}], "n": [2], "l": [[{"x": 2, "y": True}]]})
    with pytest.raises(deltic.InvalidInputError, match="`z`"):
        deltic.write(uri, wider)
    deltic.write(uri, wider, schema_mode="merge")
    assert rows(uri, "n") == [
        {"n": 1, "s": {"a": 1, "b": None}, "l": [{"x": 1, "y": None}], "z": None},
        {"n": 2, "s": {"a": 2, "b": 2.5}, "l": [{"x": 2, "y": True}], "z": "new"},
    ]
    assert {"metaData", "add", "commitInfo"} <= set(kinds(uri, 1)), "one commit changes the schema and adds the rows"
    deltic.write(uri, pa.table({"N": [3]}), schema_mode="merge")
    assert "metaData" not in kinds(uri, 2), "the schema is unchanged"
    info = next(action["commitInfo"] for action in log_actions(uri, 1) if "commitInfo" in action)
    assert info["operationParameters"]["canMergeSchema"] is True


def test_new_columns_are_nullable_even_if_required_in_the_data(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("x", pa.int64(), nullable=False)])
    deltic.write(uri, pa.table({"n": [2], "x": [5]}, schema=schema), schema_mode="merge")
    assert [field["nullable"] for field in fields(uri)] == [True, True]
    assert rows(uri, "n") == [{"n": 1, "x": None}, {"n": 2, "x": 5}]


def test_types_are_widened_only_if_the_table_allows_it(uri: str, tmp_path: Path) -> None:
    narrow = pa.table(
        {"a": pa.array([1], pa.int8()), "b": pa.array([1], pa.int32()), "c": pa.array([1.5], pa.float32())}
    )
    wide = pa.table({"a": pa.array([300], pa.int16()), "b": [1 << 40], "c": [0.1]})
    deltic.write(uri, narrow)
    with pytest.raises(deltic.InvalidInputError, match="`a`"):
        deltic.write(uri, wide, schema_mode="merge")
    assert deltic.Table(uri).snapshot().version == 0
    widening = str(tmp_path / "widening")
    deltic.write(widening, narrow, properties={"delta.enableTypeWidening": "true"})
    deltic.write(widening, wide, schema_mode="merge")
    assert [field["type"] for field in fields(widening)] == ["short", "long", "double"]
    assert rows(widening, "a") == [{"a": 1, "b": 1, "c": 1.5}, {"a": 300, "b": 1 << 40, "c": 0.1}]
    # Narrower types fit, and change nothing.
    deltic.write(widening, narrow, schema_mode="merge")
    assert [field["type"] for field in fields(widening)] == ["short", "long", "double"]


def test_values_of_unsupported_types_are_stored_if_they_fit(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1], "t": ["a"]}))
    data = pa.table({"n": pa.array([2], pa.uint64()), "t": pa.nulls(1), "x": [1.5]})
    deltic.write(uri, data, schema_mode="merge")
    assert rows(uri, "n") == [{"n": 1, "t": "a", "x": None}, {"n": 2, "t": None, "x": 1.5}]
    with pytest.raises(deltic.InvalidInputError, match="`y`"):
        deltic.write(uri, pa.table({"n": [3], "y": pa.nulls(1)}), schema_mode="merge")


def test_new_columns_of_a_mapped_table_get_ids_and_physical_names(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}), properties={"delta.columnMapping.mode": "name"})
    deltic.write(uri, pa.table({"n": [2], "a b": [3]}), schema_mode="merge")
    assert rows(uri, "n") == [{"n": 1, "a b": None}, {"n": 2, "a b": 3}]
    metadata = [field["metadata"] for field in fields(uri)]
    assert [found["delta.columnMapping.id"] for found in metadata] == [1, 2]
    assert len({found["delta.columnMapping.physicalName"] for found in metadata}) == 2
    # A column with a new type gets a new physical name, an unchanged column keeps its own.
    deltic.write(uri, pa.table({"n": [4], "a b": ["text"]}), mode="overwrite", schema_mode="overwrite")
    after = [field["metadata"] for field in fields(uri)]
    assert after[0] == metadata[0]
    assert after[1]["delta.columnMapping.id"] == 3
    assert rows(uri, "n") == [{"n": 4, "a b": "text"}]


@pytest.mark.slow
def test_an_overwrite_may_replace_columns_and_partitioning(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a"], "n": [1]}), partition_by="p")
    data = pa.table({"q": [7], "n": ["text"]})
    with pytest.raises(deltic.InvalidInputError, match="partitioned by `p`, and the data has no such column; pass"):
        deltic.write(uri, data, mode="overwrite", schema_mode="overwrite")
    assert deltic.Table(uri).snapshot().version == 0
    deltic.write(uri, data, mode="overwrite", schema_mode="overwrite", partition_by="q")
    snapshot = deltic.Table(uri).snapshot()
    assert (snapshot.partition_columns, snapshot.num_files) == (["q"], 1)
    assert rows(uri, "q") == [{"q": 7, "n": "text"}]
    assert deltic.Table(uri).snapshot(version=0).scan().to_arrow().to_pylist() == [{"p": "a", "n": 1}]
    deltic.write(uri, data, mode="overwrite", schema_mode="overwrite")
    assert deltic.Table(uri).snapshot().partition_columns == ["q"], "without partition_by the partitioning stays"
    assert "metaData" not in kinds(uri, 2)
    deltic.write(uri, data, mode="overwrite", schema_mode="overwrite", partition_by=[])
    assert deltic.Table(uri).snapshot().partition_columns == []


def test_existing_invalid_names_are_kept(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    log = Path(uri, "_delta_log")
    commit = log / f"{0:020}.json"
    # Old versions of Delta allowed such names.
    commit.write_text(commit.read_text().replace('\\"name\\":\\"n\\"', '\\"name\\":\\"a b\\"'))
    (log / f"{0:020}.crc").unlink()
    deltic.write(uri, pa.table({"a b": ["text"]}), mode="overwrite", schema_mode="overwrite")
    assert rows(uri, "a b") == [{"a b": "text"}]
    with pytest.raises(deltic.InvalidInputError, match="`c d` has the character ' ', which Delta allows only with"):
        deltic.write(uri, pa.table({"a b": [1], "c d": [2]}), mode="overwrite", schema_mode="overwrite")


def test_a_new_type_brings_its_feature(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    at = pa.array([0], pa.timestamp("us"))
    deltic.write(uri, pa.table({"n": [2], "at": at}), schema_mode="merge")
    assert "timestampNtz" in deltic.Table(uri).snapshot().protocol["writerFeatures"]
    assert len(rows(uri, "n")) == 2


def test_columns_are_merged_in_the_partitions_that_are_replaced(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a", "b"], "n": [1, 2]}), partition_by="p")
    data = pa.table({"p": ["a"], "n": [3], "x": [4]})
    deltic.write(uri, data, mode="overwrite", partition_overwrite="dynamic", schema_mode="merge")
    assert rows(uri, "n") == [{"p": "b", "n": 2, "x": None}, {"p": "a", "n": 3, "x": 4}]


def test_concurrent_schema_changes_conflict(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))

    def batches() -> Any:
        deltic.write(uri, pa.table({"n": [2], "y": [2]}), schema_mode="merge")
        yield pa.record_batch({"n": [3], "x": [3]})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64()), ("x", pa.int64())]), batches())
    with pytest.raises(deltic.MetadataChangedError):
        deltic.write(uri, reader, schema_mode="merge")
    assert rows(uri, "n") == [{"n": 1, "y": None}, {"n": 2, "y": 2}]
    assert len(files(uri)) == 2


REFUSED: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "schema_mode must be 'merge' or 'overwrite', not 'both'": (pa.table({"n": [1]}), {"schema_mode": "both"}),
    'schema_mode="overwrite" is for mode="overwrite"': (pa.table({"x": [1]}), {"schema_mode": "overwrite"}),
    'partition_overwrite="dynamic" leaves some': (
        pa.table({"x": [1]}),
        {"schema_mode": "overwrite", "mode": "overwrite", "partition_overwrite": "dynamic"},
    ),
    "does not only rearrange rows": (
        pa.table({"n": [1], "x": [1]}),
        {"schema_mode": "merge", "mode": "overwrite", "data_change": False},
    ),
    "`n` is long in the table and string in the data": (pa.table({"n": ["x"]}), {"schema_mode": "merge"}),
    "the character ' '": (pa.table({"n": [1], "a b": [1]}), {"schema_mode": "merge"}),
    "column `Y`": (
        pa.Table.from_arrays([pa.array([1])] * 3, names=["n", "y", "Y"]),
        {"schema_mode": "merge"},
    ),
    "there are two columns": (
        pa.Table.from_arrays([pa.array([1])] * 2, names=["y", "Y"]),
        {"schema_mode": "overwrite", "mode": "overwrite"},
    ),
    "every column is a partition column": (
        pa.table({"x": [1]}),
        {"schema_mode": "overwrite", "mode": "overwrite", "partition_by": ["x"]},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_schema_changes_are_refused(uri: str, message: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    data, options = REFUSED[message]
    for target in (uri, deltic.Table(uri)):
        with pytest.raises(deltic.InvalidInputError) as caught:
            deltic.write(target, data, **options)
        assert message in str(caught.value)
    assert deltic.Table(uri).snapshot().version == 0
    assert len(files(uri)) == 1


def test_a_handle_with_cached_state_merges_the_schema(uri: str) -> None:
    table = deltic.Table(uri)
    deltic.write(table, pa.table({"n": [1]}))
    deltic.write(table, pa.table({"n": [2], "x": [2]}), schema_mode="merge")
    deltic.write(table, pa.table({"n": [3], "y": [3]}), schema_mode="merge")
    assert [row["n"] for row in rows(uri, "n")] == [1, 2, 3]
    assert [field["name"] for field in fields(uri)] == ["n", "x", "y"]


DEFINES = ["delta.columnMapping.id", "delta.identity.start", "delta.typeChanges", "CURRENT_DEFAULT", "somebody's own"]
WAYS: dict[str, Callable[[str, pa.Table], object]] = {
    "merge": lambda uri, data: deltic.write(uri, data, schema_mode="merge"),
    "overwrite": lambda uri, data: deltic.write(uri, data, mode="overwrite", schema_mode="overwrite"),
    "MERGE": lambda uri, data: (
        deltic.Table(uri)
        .merge(data, "source.n = target.n")
        .with_schema_evolution()
        .when_not_matched_insert_all()
        .execute()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", DEFINES)
def test_only_descriptive_metadata_of_a_new_column_is_kept(uri: str, key: str, way: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    describes = {"comment": "new", "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    inside = {"comment": "deep", key: "7"}
    new = pa.schema(
        [
            pa.field("n", pa.int64()),
            pa.field("s", pa.string(), metadata={**describes, key: "7"}),
            pa.field("d", pa.struct([pa.field("x", pa.int64(), metadata=inside)]), metadata={key: "7"}),
        ]
    )
    WAYS[way](uri, pa.table({"n": [2], "s": ["abc"], "d": [{"x": 1}]}, schema=new))
    stored = {field["name"]: field for field in fields(uri)}
    assert stored["s"]["metadata"] == describes
    assert stored["d"]["metadata"] == {}
    assert stored["d"]["type"]["fields"][0]["metadata"] == {"comment": "deep"}
    assert rows(uri, "n")[-1] == {"n": 2, "s": "abc", "d": {"x": 1}}
    with pytest.raises(deltic.InvalidInputError, match=r"`s`.*varchar\(3\)|varchar\(3\).*`s`"):
        deltic.write(uri, pa.table({"n": [3], "s": ["abcd"], "d": [{"x": 1}]}))
