"""Partition values that no statement assigns keep their strings in the log, however another writer wrote them.

Only the writer of the timestamp `2020-01-01 00:00:00` knows its time zone: another string could be another value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import Log, features, field, metadata, struct

import deltic
from deltic import Table

Strings = dict[str, str | None]

SCHEMA = struct(
    field("t", "timestamp"),
    field("n", "integer"),
    field("d", "decimal(5,2)"),
    field("b", "boolean"),
    field("id", "long"),
    field("x", "long"),
)
FILES: list[Strings] = [
    {"t": "2020-01-01 00:00:00", "n": "007", "d": "1.5", "b": "TRUE"},
    # The same values for deltic, in the strings that it writes itself.
    {"t": "2020-01-01T00:00:00.000000Z", "n": "7", "d": "1.50", "b": "true"},
    {"t": "2020-01-01 00:00:00", "n": None, "d": "+1.50", "b": "TRUE"},
]
OF_FILE = 4
IDS = range(OF_FILE * len(FILES))
NEW = {"t": "2021-02-03T04:05:06.000000Z"}
SET_T = {"t": "TIMESTAMP '2021-02-03 04:05:06Z'"}

WAYS = {
    "copies": {},
    "vectors": {"enableDeletionVectors": "true"},
    "copies-feed": {"enableChangeDataFeed": "true"},
    "vectors-feed": {"enableDeletionVectors": "true", "enableChangeDataFeed": "true"},
    "row-ids": {
        "enableRowTracking": "true",
        "rowTracking.materializedRowIdColumnName": "_row-id",
        "rowTracking.materializedRowCommitVersionColumnName": "_row-version",
    },
}


def strings(number: int) -> Strings:
    """The strings of the row with this id."""
    return FILES[number // OF_FILE]


def made(uri: str, properties: dict[str, str]) -> Log:
    needed = ["deletionVectors", "changeDataFeed", "appendOnly", "rowTracking", "domainMetadata"]
    if "enableRowTracking" not in properties:
        needed = needed[:3]
    protocol = features(*needed)
    protocol["protocol"]["readerFeatures"] = ["deletionVectors"]
    log = Log.empty(uri, protocol, metadata(SCHEMA, ("t", "n", "d", "b"), **properties))
    for number, values in enumerate(FILES):
        ids = IDS[OF_FILE * number : OF_FILE * (number + 1)]
        tracked = {"baseRowId": ids[0], "defaultRowCommitVersion": number + 1} if len(needed) > 3 else {}
        file = log.file(f"{number}.parquet", pa.table({"id": ids, "x": ids}), partitionValues=values, **tracked)
        mark = {"domain": "delta.rowTracking", "configuration": json.dumps({"rowIdHighWaterMark": ids[-1]})}
        log.append([file, *([{"domainMetadata": {**mark, "removed": False}}] if tracked else [])])
    return log


def written(log: Log, kind: str) -> dict[Any, Strings]:
    """The strings of the rows in the files that deltic has written, by id; of change files by id and change type."""
    found: dict[Any, Strings] = {}
    for version in range(len(FILES) + 1, log.table.snapshot().version + 1):
        for action in log.of(version, kind):
            if action.get("deletionVector") is not None or action["path"][1:] == ".parquet":
                continue
            for row in pq.ParquetFile(Path(log.uri, unquote(action["path"]))).read().to_pylist():
                key = (row["id"], row["_change_type"]) if kind == "cdc" else row["id"]
                assert key not in found
                found[key] = action["partitionValues"]
    return found


def even(number: int) -> bool:
    return number % 2 == 0


def merged(table: Table, clauses: Callable[[Any], Any]) -> None:
    source = pa.table({"id": [n for n in IDS if even(n)] + [100], "x": pa.array([50] * 7, pa.int64())})
    clauses(table.merge(source, "source.id = target.id")).execute()


UPDATES: dict[str, tuple[Callable[[Table], object], Callable[[int], Strings]]] = {
    "another-column": (lambda table: table.update({"x": "x + 100"}, "id % 2 = 0"), strings),
    "partition-column": (lambda table: table.update(SET_T, "id % 2 = 0"), lambda n: {**strings(n), **NEW}),
    "of-its-value": (
        lambda table: table.update({"n": "n + 1"}, "id % 2 = 0"),
        lambda n: {**strings(n), "n": None if n >= 8 else "8"},
    ),
    "merge": (lambda table: merged(table, lambda m: m.when_matched_update({"x": "source.x"})), strings),
    # One clause assigns a partition column, another does not.
    "merge-clauses": (
        lambda table: merged(
            table,
            lambda m: m.when_matched_update(SET_T, "target.id IN (0, 6, 8)").when_matched_update({"x": "source.x"}),
        ),
        lambda n: {**strings(n), **NEW} if n in {0, 6, 8} else strings(n),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("update", UPDATES)
def test_updates(uri: str, way: str, update: str) -> None:
    log = made(uri, WAYS[way])
    change, after = UPDATES[update]
    change(log.table)
    marks = "vectors" in way
    rows = {n: after(n) if even(n) else strings(n) for n in IDS if even(n) or not marks}
    assert written(log, "add") == rows
    changes: dict[Any, Strings] = {(n, "update_preimage"): strings(n) for n in IDS if even(n)}
    changes |= {(n, "update_postimage"): after(n) for n in IDS if even(n)}
    assert written(log, "cdc") == (changes if "feed" in way else {})
    assert sorted(log.table.scan().to_arrow()["id"].to_pylist()) == list(IDS)
    assert log.table.check(files=True).ok


DELETES: dict[str, Callable[[Table], object]] = {
    "delete": lambda table: table.delete("id % 2 = 0"),
    "merge": lambda table: merged(table, lambda m: m.when_matched_delete()),
    "replace": lambda table: deltic.write(
        table, table.scan(filter="id < 0").to_arrow(), mode="overwrite", replace_where="id % 2 = 0"
    ),
    "purge": lambda table: table.purge("id % 2 = 0"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delete", DELETES)
def test_deletes(uri: str, way: str, delete: str) -> None:
    log = made(uri, WAYS[way])
    DELETES[delete](log.table)
    marks = "vectors" in way and delete != "purge"
    assert written(log, "add") == ({} if marks else {n: strings(n) for n in IDS if not even(n)})
    changes = {(n, "delete"): strings(n) for n in IDS if even(n)}
    assert written(log, "cdc") == (changes if "feed" in way and not marks else {})
    assert sorted(log.table.scan().to_arrow()["id"].to_pylist()) == [n for n in IDS if not even(n)]


def test_removed_files_beside_change_files(uri: str) -> None:
    """A change file of one step makes the transaction write those of all its changes."""
    log = made(uri, WAYS["copies-feed"])
    with log.table.transaction() as tx:
        tx.delete("id < 4")
        tx.update({"x": "0"}, "id = 5")
    changes = {(n, "delete"): strings(n) for n in range(4)}
    changes |= {(5, kind): strings(5) for kind in ("update_preimage", "update_postimage")}
    assert written(log, "cdc") == changes


def test_inserted_values_are_printed(uri: str) -> None:
    log = made(uri, {})
    new = log.table.scan(filter="id IN (1, 5)").to_arrow()
    new = new.set_column(new.schema.get_field_index("id"), "id", pa.array([101, 105]))
    log.table.merge(new, "source.id = target.id").when_not_matched_insert_all().execute()
    assert written(log, "add") == dict.fromkeys((101, 105), FILES[1])


@pytest.mark.parametrize("arguments", [{}, {"zorder_by": ["x"]}], ids=["compact", "z-order"])
def test_files_that_are_packed(uri: str, arguments: dict[str, Any]) -> None:
    log = made(uri, {})
    for number, values in enumerate(FILES):
        more = pa.table({"id": [100 + number], "x": [0]})
        log.append([log.file(f"{3 + number}.parquet", more, partitionValues=values)])
    log.table.optimize(**arguments)
    wanted = {n: strings(n) for n in IDS} | {100 + number: values for number, values in enumerate(FILES)}
    assert written(log, "add") == wanted


def test_files_of_other_versions_and_tables(uri: str, tmp_path: Path) -> None:
    log = made(uri, {})
    before = log.table.snapshot().version
    log.table.update(SET_T)
    log.table.restore(before)

    def in_order(values: Strings) -> str:
        return json.dumps(values, sort_keys=True)

    def live(log: Log, version: int) -> list[Strings]:
        return sorted((add["partitionValues"] for add in log.of(version, "add")), key=in_order)

    wanted = sorted(FILES, key=in_order)
    assert live(log, before + 2) == wanted
    for shallow in (True, False):
        clone = str(tmp_path / f"clone-{shallow}")
        log.table.clone(clone, shallow=shallow)
        assert live(Log(clone), 0) == wanted


def test_a_column_named_like_the_strings_is_refused(uri: str) -> None:
    name = "_metadata.partition_string.p"
    deltic.write(uri, pa.table({"p": ["a", "a"], name: [1, 2], "id": [1, 2]}), partition_by=["p"])
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"rename the column"):
        Table(uri).delete("id = 1")
