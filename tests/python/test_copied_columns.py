"""UPDATE of files whose other columns are copied: the rows are those of a table whose files are written again."""

from __future__ import annotations

import json
import logging
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import deltic
from deltic import DelticError, Table

# Files of tables that track rows are always written again as a whole.
AS_A_WHOLE = {"delta.enableRowTracking": "true"}

STRUCT = pa.struct({"x": pa.int32(), "name": pa.string(), "deep": pa.struct({"y": pa.float64()})})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "value": pa.int64(),
        "text": pa.string(),
        "word": pa.string(),
        "real": pa.float64(),
        "price": pa.decimal128(20, 3),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "raw": pa.binary(),
        "flag": pa.bool_(),
        "inner": STRUCT,
        "items": pa.list_(pa.int64()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "part": pa.string(),
    }
)
FILE_ROWS, GROUP_ROWS = 3000, 700


def rows_of(chance: random.Random, first: int = 0) -> pa.Table:
    """Rows of a file, with nulls in all columns but `id`."""

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    def row(number: int) -> dict[str, Any]:
        return {
            "id": number,
            "value": maybe(chance.randrange(-1000, 1000)),
            "text": maybe("".join(chance.choices("abcdé😀", k=chance.randrange(60)))),
            "word": maybe(chance.choice(["one", "two", "three"])),
            "real": maybe(chance.choice([0.5, -0.0, float("inf"), chance.random()])),
            "price": maybe(Decimal(chance.randrange(10**12)) / 1000),
            "day": maybe(date(1, 1, 1) + timedelta(days=chance.randrange(3_000_000))),
            "at": maybe(datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**15))),
            "raw": maybe(chance.randbytes(40)),
            "flag": maybe(chance.random() < 0.5),
            "inner": maybe({"x": maybe(number), "name": maybe("n" * (number % 7)), "deep": maybe({"y": 0.25})}),
            "items": maybe([maybe(item) for item in range(chance.randrange(5))]),
            "counts": maybe([(str(key), maybe(key)) for key in range(chance.randrange(4))]),
            "part": ["a", "b", None][number // 1000 % 3] if number < FILE_ROWS else "a",
        }

    return pa.Table.from_pylist([row(first + number) for number in range(FILE_ROWS)], SCHEMA)


def made(uri: str, properties: dict[str, str], seed: int = 0, partition_by: str | None = None) -> Table:
    """A table of two writes."""
    deltic.create(uri, SCHEMA, properties=properties, partition_by=partition_by)
    chance = random.Random(seed)
    for first in (0, FILE_ROWS):
        deltic.write(uri, rows_of(chance, first), mode="append", row_group_rows=GROUP_ROWS)
    return Table(uri)


def sorted_rows(table: Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id")


def last_adds(uri: str) -> list[dict[str, Any]]:
    log = sorted(Path(uri, "_delta_log").glob("*.json"))[-1]
    return [json.loads(line)["add"] for line in log.read_text().splitlines() if line.startswith('{"add"')]


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why columns were not copied."""
    messages = [record.getMessage() for record in caplog.records]
    return [message.split("again: ")[1] for message in messages if "UPDATE writes all" in message]


UPDATES: list[tuple[dict[str, Any], str | None]] = [
    ({"value": deltic.lit(-5)}, "id % 7 = 3"),
    ({"value": "value + id", "word": "concat(word, '!')"}, "flag"),
    ({"inner.name": deltic.lit("new")}, "value > 900"),
    ({"text": "NULL", "price": "price + 1"}, None),
    ({"items": deltic.lit([1, 2]), "at": "NULL"}, "id BETWEEN 100 AND 120 OR real > 0.9"),
    ({"real": "CAST(id AS DOUBLE)"}, "day < DATE '1900-01-01'"),
]


@pytest.mark.parametrize("partition_by", [None, "part"])
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_rows_are_those_of_files_written_as_a_whole(
    tmp_path: Path, mapping: str, partition_by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="deltic")
    seed = len(mapping) + bool(partition_by)
    properties = {} if mapping == "none" else {"delta.columnMapping.mode": mapping}
    copied = made(str(tmp_path / "copied"), properties, seed, partition_by)
    whole = made(str(tmp_path / "whole"), {**properties, **AS_A_WHOLE}, seed, partition_by)
    if mapping != "none":
        for table in (copied, whole):
            table.rename_column("text", "renamed")
    for set_, where in random.Random(seed).sample(UPDATES, k=len(UPDATES)):
        if mapping != "none":
            set_ = {("renamed" if key == "text" else key): value for key, value in set_.items()}
        caplog.clear()
        commit = copied.update(set_, where)
        assert reasons(caplog) == [], set_
        assert commit.metrics["numUpdatedRows"] == whole.update(set_, where).metrics["numUpdatedRows"]
        assert set(reasons(caplog)) == {"the table tracks rows"}
        assert sorted_rows(copied).equals(sorted_rows(whole)), (set_, where)
    assert copied.check(files=True).ok


def test_other_columns_are_copied_with_their_row_groups_and_statistics(uri: str) -> None:
    table = made(uri, {})
    before = {add["path"]: add for version in (1, 2) for add in [_adds_of(uri, version)]}
    old = {path: pq.ParquetFile(Path(uri, path)).metadata for path in before}
    table.update({"value": deltic.lit(7)}, "id % 10 = 0")
    adds = last_adds(uri)
    assert len(adds) == 2
    for add, (path, metadata) in zip(
        sorted(adds, key=_first_id), sorted(old.items(), key=lambda o: _first_id(before[o[0]])), strict=True
    ):
        new = pq.ParquetFile(Path(uri, add["path"])).metadata
        assert new.num_row_groups == metadata.num_row_groups == -(-FILE_ROWS // GROUP_ROWS)
        for group in range(new.num_row_groups):
            for column in range(new.num_columns):
                now, then = new.row_group(group).column(column), metadata.row_group(group).column(column)
                if now.path_in_schema != "value":
                    assert _chunk(uri, add["path"], now) == _chunk(uri, path, then), now.path_in_schema
                    assert now.statistics == then.statistics
                    assert now.has_offset_index
                    assert now.has_column_index == then.has_column_index
        stats, known = json.loads(add["stats"]), json.loads(before[path]["stats"])
        for member in ("minValues", "maxValues", "nullCount"):
            assert {**stats[member], "value": 0} == {**known[member], "value": 0}
    values = sorted_rows(table).column("value")
    assert json.loads(adds[0]["stats"])["maxValues"]["value"] <= max(v for v in values.to_pylist() if v is not None)


def _adds_of(uri: str, version: int) -> dict[str, Any]:
    lines = Path(uri, f"_delta_log/{version:020}.json").read_text().splitlines()
    (add,) = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    return add


def _first_id(add: dict[str, Any]) -> int:
    return json.loads(add["stats"])["minValues"]["id"]


def _chunk(uri: str, path: str, column: Any) -> bytes:
    start = column.dictionary_page_offset or column.data_page_offset
    return Path(uri, path).read_bytes()[start : start + column.total_compressed_size]


def test_other_readers_read_the_files(uri: str) -> None:
    table = made(uri, {})
    table.update({"value": "id * 2", "inner.x": "1"}, "id % 3 = 0")
    expected = sorted_rows(table)
    ids, values = (expected.column(name).to_pylist() for name in ("id", "value"))
    assert all(value == 2 * number for number, value in zip(ids, values, strict=True) if number % 3 == 0)
    files = [str(Path(uri, add["path"])) for add in last_adds(uri)]
    for column in ("word", "text", "value", "raw", "flag", "inner", "items"):
        by_pyarrow = pa.concat_tables(pq.read_table(file) for file in files).sort_by("id")
        assert by_pyarrow.column(column).to_pylist() == expected.column(column).to_pylist()
    rows = duckdb.sql(f"SELECT id, value, word, items FROM read_parquet({files}) ORDER BY id").fetchall()
    assert rows == list(
        zip(*(expected.column(name).to_pylist() for name in ("id", "value", "word", "items")), strict=True)
    )
    # Bounds of pages skip rows in DataFusion.
    for where in ("value = 60", "word = 'two'", "id > 5990", "flag", "price > 5000"):
        found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
        counted = pa.table(found.execute(f"SELECT count(*) AS n FROM t WHERE {where}").read_all())
        assert counted.column("n").to_pylist() == [table.scan(filter=where).count()], where


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda table: table.add_columns(pa.schema({"new": pa.int64()})),
            "its columns are not as they would be written",
        ),
        (lambda table: table.delete("id < 10"), "not all its rows are written"),
    ],
)
def test_other_files_are_written_again_as_a_whole(
    uri: str, change: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(uri, {"delta.enableDeletionVectors": "true"})
    change(table)
    table.set_properties({"delta.enableDeletionVectors": "false"})
    caplog.set_level(logging.DEBUG, logger="deltic")
    table.update({"value": "0"}, "id >= 10 AND id < 3000")
    assert reason in reasons(caplog)
    assert set(table.scan(["value"], filter="id >= 10 AND id < 3000").to_arrow().column("value").to_pylist()) == {0}


def test_rules_are_checked_on_columns_that_keep_their_values(uri: str) -> None:
    table = made(uri, {})
    table.add_constraint("ordered", "value IS NULL OR value < id + 2000")
    with pytest.raises(DelticError, match="ordered"):
        table.update({"value": "5000"}, "id = 3")
    table.update({"value": "5000"}, "id = 5000")
    assert table.scan(["value"], filter="id = 5000").to_arrow().column("value").to_pylist() == [5000]


def test_changes_have_whole_rows_and_generated_columns_follow(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    twice = pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "value * 2 + length(word)"})
    columns = ("id", "value", "word", "text", "raw", "items", "inner")
    schema = pa.schema([*(SCHEMA.field(name) for name in columns), twice])
    deltic.create(uri, schema, properties={"delta.enableChangeDataFeed": "true"})
    table = Table(uri)
    table.add_constraint("small", "twice IS NULL OR twice < 100000")
    deltic.write(uri, rows_of(random.Random(3)).select(columns), mode="append", row_group_rows=GROUP_ROWS)
    before = sorted_rows(table).to_pylist()
    caplog.set_level(logging.DEBUG, logger="deltic")
    commit = table.update({"value": "id + 1"}, "id % 50 = 7")
    assert reasons(caplog) == []
    expected = [dict(row) for row in before]
    for row in expected:
        if row["id"] % 50 == 7:
            row["value"] = row["id"] + 1
            row["twice"] = None if row["word"] is None else 2 * row["value"] + len(row["word"])
    assert sorted_rows(table).to_pylist() == expected
    changes = (
        table.changes(commit.version, commit.version).to_arrow().sort_by("id").select([*schema.names, "_change_type"])
    )
    for kind, rows in (("update_preimage", before), ("update_postimage", expected)):
        found = [row for row in changes.to_pylist() if row.pop("_change_type") == kind]
        assert found == [row for row in rows if row["id"] % 50 == 7]
    assert len(changes) == 2 * (FILE_ROWS // 50)
    with pytest.raises(DelticError, match="small"):
        table.update({"value": "60000"}, "word = 'two'")
    (add,) = last_adds(uri)
    stats, twices = json.loads(add["stats"]), [row["twice"] for row in expected]
    known = [value for value in twices if value is not None]
    assert (stats["minValues"]["twice"], stats["maxValues"]["twice"]) == (min(known), max(known))
    assert stats["nullCount"]["twice"] == len(twices) - len(known)
    assert table.check(files=True).ok


def varint(number: int) -> bytes:
    """A positive number as Thrift stores it."""
    number, found = 2 * number, []
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def location(column: Any) -> bytes:
    """The offset of the first page in the index of a chunk."""
    return b"\x16" + varint(column.data_page_offset)


MOST_PAGES = b"\x19\xfc\xff\xff\xff\xff\x07"


@pytest.mark.parametrize(
    ("claim", "lie"),
    [
        (location, lambda column: b"\x16" + varint(column.data_page_offset - 1)),
        (lambda column: b"\x19\x1c" + location(column), lambda column: b"\x19\x2c" + location(column)),
        # So many places of pages would take 48 GB.
        (lambda column: b"\x19\x1c" + location(column) + b"\x15", lambda _: MOST_PAGES),
    ],
    ids=["place", "count", "memory"],
)
def test_indexes_of_pages_that_lie_are_not_copied(
    uri: str, claim: Any, lie: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(uri, {})
    path = Path(uri, _adds_of(uri, 1)["path"])
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(2).column(2)
    before, after = claim(column), lie(column)
    after += before[len(after) :]
    at = whole.rindex(before)
    assert len(before) == len(after)
    assert at > len(whole) * 0.8
    path.write_bytes(whole[:at] + after + whole[at + len(before) :])
    expected = [7 if number < 100 else value for number, value in zip(*_values(table), strict=True)]
    texts = sorted_rows(table).column("text")
    caplog.set_level(logging.DEBUG, logger="deltic")
    table.update({"value": "7"}, "id < 100")
    assert reasons(caplog) == ["its pages are not as they should be"]
    assert _values(table)[1] == expected
    assert sorted_rows(table).column("text").equals(texts)
    assert len(last_adds(uri)) == 1


def _values(table: Table) -> tuple[list[Any], list[Any]]:
    rows = sorted_rows(table)
    return rows.column("id").to_pylist(), rows.column("value").to_pylist()


def test_files_of_other_writers_are_copied_as_they_are(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(random.Random(5)).select(["id", "value", "text", "word", "real", "day", "flag"])
    # Without an index of pages, and with the dictionary and pages of another library.
    Path(uri).mkdir()
    pq.write_table(rows, Path(uri, "a.parquet"), row_group_size=GROUP_ROWS)
    deltic.convert(uri)
    table = Table(uri)
    caplog.set_level(logging.DEBUG, logger="deltic")
    table.update({"value": "id"}, "flag")
    assert reasons(caplog) == []
    expected = rows.to_pylist()
    for row in expected:
        row["value"] = row["id"] if row["flag"] else row["value"]
    assert sorted_rows(table).to_pylist() == expected
    (add,) = last_adds(uri)
    assert duckdb.sql(f"SELECT * FROM read_parquet('{Path(uri, add['path'])}') ORDER BY id").fetchall() == [
        tuple(row.values()) for row in expected
    ]
    for where in ("value = 60", "word = 'two'", "id > 2990", "flag", "day < '0300-01-01'", "real > 0.9"):
        found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
        counted = pa.table(found.execute(f"SELECT count(*) AS n FROM t WHERE {where}").read_all())
        assert counted.column("n").to_pylist() == [table.scan(filter=where.replace("'0300", "DATE '0300")).count()], (
            where
        )


def test_few_requests_are_sent(tmp_path: Path) -> None:
    counts = []
    for properties in ({}, AS_A_WHOLE):
        uri = str(tmp_path / str(len(properties)))
        table = made(uri, properties)
        table.snapshot()
        before = table.request_counts()
        table.update({"value": "0"}, "id = 5000")
        after = table.request_counts()
        counts.append({name: after[name] - before[name] for name in after})
    copied, whole = counts
    # The end of the file is read once more, and the columns to copy by row groups.
    groups = -(-FILE_ROWS // GROUP_ROWS)
    assert copied["puts"] == whole["puts"]
    assert copied["gets"] <= whole["gets"] + groups
    assert copied["bytes_read"] <= whole["bytes_read"] + 80_000


def test_a_damaged_file_is_an_error_and_leaves_no_file(uri: str) -> None:
    table = made(uri, {})
    path = Path(uri, _adds_of(uri, 1)["path"])
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(1).column(2)
    start = column.dictionary_page_offset or column.data_page_offset
    path.write_bytes(
        whole[:start] + b"\xff" * column.total_compressed_size + whole[start + column.total_compressed_size :]
    )
    before = sorted(Path(uri).glob("*.parquet"))
    with pytest.raises(DelticError, match="decoded"):
        table.update({"value": "0"}, "id < 100")
    assert sorted(Path(uri).glob("*.parquet")) == before


def test_a_page_without_its_checksum_is_an_error(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(random.Random(6)).select(["id", "value", "raw", "text"])
    path = Path(uri, "a.parquet")
    path.parent.mkdir()
    pq.write_table(rows, path, compression="zstd", use_dictionary=False, write_page_checksum=True)
    deltic.convert(uri)
    damaged = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(damaged)
    caplog.set_level(logging.DEBUG, logger="deltic")
    with pytest.raises(deltic.CorruptTableError, match=r"a\.parquet"):
        Table(uri).update({"value": "0"}, "id = 5")
    assert reasons(caplog) == []
    assert Table(uri).snapshot().version == 0
    assert sorted(Path(uri).glob("*.parquet")) == [path]


@pytest.mark.parametrize("member", ["size", "offset"])
def test_negative_places_in_a_footer_are_corrupt(uri: str, member: str) -> None:
    table = made(uri, {})
    path = Path(uri, _adds_of(uri, 1)["path"])
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(1).column(2)
    size = b"\x16" + varint(column.total_compressed_size)
    # The offset of the first data page follows two fields after the size.
    claim = size if member == "size" else size + b"\x26" + varint(column.data_page_offset)
    at = whole.rindex(claim) + (1 if member == "size" else len(size) + 1)
    path.write_bytes(whole[:at] + bytes([whole[at] | 1]) + whole[at + 1 :])
    for call in (lambda: table.scan().to_arrow(), lambda: table.update({"value": "0"}, "id < 100")):
        with pytest.raises(DelticError, match="the column chunk of `text` has a negative offset or size"):
            call()


@pytest.mark.parametrize("offset", [b"\x00", b"\x01"], ids=["0", "-1"])
def test_a_dictionary_offset_can_mean_none(uri: str, offset: bytes) -> None:
    """Some writers say 0 or -1 for a column chunk without a dictionary."""
    rows = rows_of(random.Random(8)).select(["id", "value", "text"])
    path = Path(uri, "a.parquet")
    path.parent.mkdir()
    pq.write_table(rows, path, use_dictionary=False, row_group_size=GROUP_ROWS)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - length : -8]
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            # Field 9, the first data page; field 12, the statistics, and between them field 11, the dictionary.
            data = b"\x26" + varint(metadata.row_group(group).column(column).data_page_offset)
            assert footer.count(data + b"\x3c") == 1
            footer = footer.replace(data + b"\x3c", data + b"\x26" + offset + b"\x1c")
    path.write_bytes(whole[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_table(path) == rows
    assert duckdb.sql(f"SELECT sum(value) FROM '{path}'").fetchall() == [(pc.sum(rows["value"]).as_py(),)]
    deltic.convert(uri)
    table = Table(uri)
    assert table.scan().to_arrow().sort_by("id") == rows.sort_by("id")
    assert table.scan(filter="id = 5").to_arrow().num_rows == 1
    table.update({"value": "0"}, "id = 5")
    values = pc.if_else(pc.equal(rows["id"], 5), 0, rows["value"]).cast(rows["value"].type)
    assert table.scan().to_arrow().sort_by("id") == rows.set_column(1, "value", values).sort_by("id")


def test_inexact_bounds_of_another_writer_are_not_kept(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """delta-rs ignores NaN, and prints the bounds of decimals as doubles."""
    chance, great = random.Random(7), Decimal("99920091418229529.399")
    rows = pa.table(
        {
            "id": pa.array(range(3000)),
            "value": pa.array(range(3000)),
            "text": [chance.randbytes(20).hex() for _ in range(3000)],
            "real": [float("nan") if number == 5 else float(number % 100) for number in range(3000)],
            "price": pa.array([great if number == 7 else Decimal(1) for number in range(3000)], pa.decimal128(30, 3)),
        }
    )
    deltalake.write_deltalake(uri, rows)
    table = Table(uri)
    caplog.set_level(logging.DEBUG, logger="deltic")
    table.update({"value": "value + 1"}, "id < 10")
    assert reasons(caplog) == []
    (add,) = last_adds(uri)
    stats = json.loads(add["stats"])
    assert set(stats["minValues"]) == set(stats["maxValues"]) == {"id", "value", "text"}
    assert stats["nullCount"] == dict.fromkeys(rows.column_names, 0)
    for where in ("real > 1000", "price > 5"):
        found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
        counted = pa.table(found.execute(f"SELECT count(*) AS n FROM t WHERE {where}").read_all())
        assert counted.column("n").to_pylist() == [1], where
    assert table.scan(filter="real > 1000").count() == 1
