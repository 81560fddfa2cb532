"""Conversion of folders of Parquet files: rows, partition values, statistics, and refused folders."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import Log

import deltic
from deltic.cli import main


def store(root: str, path: str, columns: dict[str, Any] | pa.Table, **options: Any) -> None:
    place = Path(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), place, **options)


def adds(uri: str) -> dict[str, dict[str, Any]]:
    return {add["path"]: add for add in Log(uri).of(0, "add")}


def stats(uri: str, path: str) -> dict[str, Any]:
    return json.loads(adds(uri)[path]["stats"])


def rows(uri: str) -> list[dict[str, Any]]:
    return deltic.Table(uri).scan().to_arrow().to_pylist()


def is_no_table(uri: str) -> bool:
    return not Path(uri, "_delta_log").exists()


def test_files_stay_where_they_are(uri: str) -> None:
    store(uri, "a.parquet", {"id": [1, 2]})
    store(uri, "more/b c.parquet", {"id": [3]})
    before = {path: path.read_bytes() for path in Path(uri).rglob("*.parquet")}
    done = deltic.convert(uri, name="numbers", properties={"delta.checkpointInterval": "7"})
    assert (done.version, done.num_files, done.num_rows) == (0, 2, 3)
    assert done.num_bytes == sum(map(len, before.values()))
    assert {path: path.read_bytes() for path in Path(uri).rglob("*.parquet")} == before
    assert set(adds(uri)) == {"a.parquet", "more/b%20c.parquet"}
    assert sorted(row["id"] for row in rows(uri)) == [1, 2, 3]
    table = deltic.Table(uri)
    assert table.detail().name == "numbers"
    assert table.snapshot().properties["delta.checkpointInterval"] == "7"
    assert table.check(files=True).ok
    last = table.history()[0]
    assert last["operation"] == "CONVERT"
    assert last["operationMetrics"] == {"numConvertedFiles": "2"}


def test_folders_have_the_values_of_columns(uri: str) -> None:
    store(uri, "day=2013-01-01/_who=a%2Fb/1.parquet", {"id": [1]})
    store(uri, "day=2013-01-02/_who=__HIVE_DEFAULT_PARTITION__/2.parquet", {"id": [2]})
    store(uri, "day=__HIVE_DEFAULT_PARTITION__/_who=é/3.parquet", {"id": [3], "day": ["what the file says"]})
    deltic.convert(uri, partition_schema={"day": "date", "_who": "string"})
    assert sorted(rows(uri), key=lambda row: row["id"]) == [
        {"id": 1, "day": date(2013, 1, 1), "_who": "a/b"},
        {"id": 2, "day": date(2013, 1, 2), "_who": None},
        {"id": 3, "day": None, "_who": "é"},
    ]
    assert deltic.Table(uri).scan(filter="day = DATE '2013-01-02'").to_arrow()["id"].to_pylist() == [2]


def test_a_value_is_stored_as_its_type_prints_it(uri: str) -> None:
    store(uri, "n=007/1.parquet", {"id": [1]})
    deltic.convert(uri, partition_schema=pa.schema([("n", pa.int32())]))
    assert [add["partitionValues"] for add in adds(uri).values()] == [{"n": "7"}]


def test_statistics_are_those_of_the_footers(uri: str) -> None:
    columns = pa.table(
        {
            "i": pa.array([5, None, -1, 9], pa.int32()),
            "none": pa.array([None] * 4, pa.int64()),
            "half": pa.array([None, None, 3, 4], pa.int64()),
            "text": ["b", "a", "z" * 40, None],
            "price": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")], pa.decimal128(9, 2)),
            "day": [date(2020, 1, 2), date(1999, 12, 31), None, date(2000, 1, 1)],
            "at": pa.array([1_000_001, None, 3, 4], pa.timestamp("us", "UTC")),
            "f": [1.0, float("nan"), 2.0, None],
            "flag": [True, None, False, True],
            "s": [{"x": 1}, None, {"x": None}, {"x": 4}],
            "l": [[1], None, [], [2, 3]],
        }
    )
    store(uri, "1.parquet", columns, row_group_size=2)
    deltic.convert(uri)
    found = stats(uri, "1.parquet")
    assert found["numRecords"] == 4
    # The maximum of `text` is truncated and rounded up. Parquet's bounds of `f` ignore NaN.
    assert found["maxValues"].pop("text") >= "z" * 40
    assert found["minValues"] == {
        "i": -1,
        "half": 3,
        "text": "a",
        "price": -2.25,
        "day": "1999-12-31",
        "at": "1970-01-01T00:00:00.000Z",
        "s": {"x": 1},
    }
    assert found["maxValues"] == {
        "i": 9,
        "half": 4,
        "price": 1.5,
        "day": "2020-01-02",
        "at": "1970-01-01T00:00:01.001Z",
        "s": {"x": 4},
    }
    counts = {"i": 1, "none": 4, "half": 2, "text": 1, "price": 1, "day": 1, "at": 1, "f": 1, "flag": 1, "s": {"x": 2}}
    assert found["nullCount"] == counts
    table = deltic.Table(uri)
    assert table.scan(filter="f > 100").to_arrow().num_rows == 1, "NaN is greater than any number"
    assert table.scan(filter="text > 'zz'").count() == 1


def test_statistics_can_be_left_out(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1, 2]})
    deltic.convert(uri, collect_statistics=False)
    assert stats(uri, "1.parquet") == {"numRecords": 2}


def test_files_without_statistics_have_no_bounds(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1, 2]}, write_statistics=False)
    deltic.convert(uri)
    found = stats(uri, "1.parquet")
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}, "tightBounds": True}
    assert deltic.Table(uri).scan(filter="id = 2").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_files_are_read_and_filtered(uri: str, seed: int) -> None:
    """Random files: all rows are read, and filters return the rows that a simple model returns."""
    rng = random.Random(seed)
    values = [None, -(2**31), -1, 0, 1, 2**31 - 1]
    texts = [None, "", "a", "é" * 40, "\U0010ffff" * 33, "zz"]
    expected = []
    for number in range(rng.randrange(1, 6)):
        length = rng.randrange(4)
        columns: dict[str, Any] = {"n": pa.array([rng.choice(values) for _ in range(length)], pa.int32())}
        columns["t"] = pa.array([rng.choice(texts) for _ in range(length)], pa.string())
        columns["d"] = pa.array([rng.choice([None, 0.0, -0.0, float("inf"), float("nan")]) for _ in range(length)])
        chosen = {name: columns[name].cast(pa.float64()) if name == "d" else columns[name] for name in columns}
        if rng.random() < 0.5:
            del chosen[rng.choice(sorted(chosen))]
        part = rng.choice(["a", "b%20c", "__HIVE_DEFAULT_PARTITION__"])
        store(uri, f"p={part}/{number}.parquet", pa.table(chosen), row_group_size=rng.choice([1, 2, 10]))
        value = {"a": "a", "b%20c": "b c"}.get(part)
        for row in pa.table(chosen).to_pylist():
            expected.append({"n": None, "t": None, "d": None, **row, "p": value})
    done = deltic.convert(uri, partition_schema={"p": "string"})
    names = [name for name in done.schema.names if name != "p"]
    assert done.num_rows == len(expected)
    table = deltic.Table(uri)
    shown = sorted(repr({name: row[name] for name in [*names, "p"]}) for row in expected)
    assert sorted(map(repr, rows(uri))) == shown
    for name in names:
        for literal in {"n": ["0", "2147483647", "-1"], "t": ["''", "'a'", "'zz'"], "d": ["0.0", "1e300"]}[name]:
            right = table.scan(filter=f"{name} >= {literal}").count()
            looked = sum(deltic_like(row[name], literal) for row in expected)
            assert right == looked, (name, literal)
        assert table.scan(filter=f"{name} IS NULL").count() == sum(row[name] is None for row in expected)


def deltic_like(value: Any, literal: str) -> bool:
    """`value >= literal` in Spark's order, where NaN is the greatest."""
    if value is None:
        return False
    if isinstance(value, str):
        return value.encode() >= literal.strip("'").encode()
    return value != value or value >= float(literal)


def test_columns_are_those_of_all_files(uri: str) -> None:
    store(uri, "1.parquet", {"a": [1], "s": [{"x": 1}]})
    store(uri, "2.parquet", {"b": ["two"], "s": [{"y": "z"}]})
    schema = deltic.convert(uri).schema
    assert schema.names == ["a", "s", "b"]
    assert all(field.nullable for field in schema)
    assert rows(uri) == [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": None, "s": {"x": None, "y": "z"}, "b": "two"},
    ]


def test_a_dry_run_writes_nothing(uri: str) -> None:
    store(uri, "p=1/1.parquet", {"id": [1, 2]})
    would = deltic.convert(uri, partition_schema={"p": "integer"}, dry_run=True)
    assert (would.version, would.num_files, would.num_rows) == (None, 1, 2)
    assert would.schema == pa.schema([("id", pa.int64()), ("p", pa.int32())])
    assert str(would).startswith("1 file would be converted (2 rows")
    assert is_no_table(uri)
    with pytest.raises(deltic.InvalidInputError, match="partition_schema"):
        deltic.convert(uri, dry_run=True)


def test_the_table_is_like_any_other(uri: str) -> None:
    store(uri, "p=1/1.parquet", {"id": [1, 2]})
    deltic.convert(uri, partition_schema={"p": "integer"}, properties={"delta.enableRowTracking": "true"})
    assert [add["baseRowId"] for add in adds(uri).values()] == [0]
    table = deltic.Table(uri)
    deltic.write(uri, pa.table({"id": [3], "p": pa.array([2], pa.int32())}))
    table.delete("id = 1")
    table.update({"id": "id + 10"}, "p = 1")
    assert sorted((row["id"], row["p"]) for row in rows(uri)) == [(3, 2), (12, 1)]
    assert table.vacuum(0, force=True).files_deleted > 0
    assert sorted((row["id"], row["p"]) for row in rows(uri)) == [(3, 2), (12, 1)]


def test_hidden_files_are_ignored(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    for path in ("_SUCCESS", ".1.parquet.crc", "_temporary/0/x.parquet", "a/.hidden/x"):
        place = Path(uri, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"no Parquet")
    assert deltic.convert(uri).num_files == 1


def test_files_that_are_not_parquet_are_named(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    Path(uri, "notes.txt").write_text("hello, this is no Parquet")
    with pytest.raises(deltic.InvalidInputError, match=r"(?s)read as Parquet.*notes\.txt"):
        deltic.convert(uri)
    assert is_no_table(uri)
    Path(uri, "notes.txt").write_bytes(b"")
    with pytest.raises(deltic.InvalidInputError, match="read as Parquet") as caught:
        deltic.convert(uri)
    assert "log" not in str(caught.value).split("[")[0], "the message does not speak of a log"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"id": ["text"]}, "`id` has the type string here and long in earlier files"),
        ({"ID": [1]}, "`ID` is spelled `id` in other files"),
        ({"id": pa.array([1], pa.timestamp("ns"))}, "`id` has timestamps in nanoseconds"),
        ({"id": [1], "s": pa.array([{"v": 1}], pa.struct([("v", pa.uint64())]))}, "`s.v`.*uint64"),
        ({"id": [1], "a b": [1]}, "a b"),
        ({"id": [1], "t": pa.array([1], pa.time64("us"))}, "`t`"),
    ],
)
def test_columns_that_no_table_has_are_refused(uri: str, second: dict[str, Any], message: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    store(uri, "2.parquet", second)
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.convert(uri)
    assert is_no_table(uri)


@pytest.mark.parametrize(
    ("path", "schema", "message"),
    [
        ("p=1/1.parquet", None, r"folders have the partition columns \[p\], and partition_schema has no partition"),
        ("1.parquet", {"p": "integer"}, r"folders have no partition columns, and .*\[p\]"),
        ("q=1/p=1/1.parquet", {"p": "integer", "q": "integer"}, r"\[q, p\].*\[p, q\]"),
        ("p=x/1.parquet", {"p": "integer"}, "`x` for the partition column `p`, which is not a value of type integer"),
        ("p=1/1.parquet", {"p": pa.list_(pa.int32())}, "`p` is an array"),
        ("p=1/1.parquet", "p int", "types by name"),
    ],
)
def test_folders_that_do_not_fit_are_refused(uri: str, path: str, schema: Any, message: str) -> None:
    store(uri, path, {"id": [1]})
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.convert(uri, partition_schema=schema)
    assert is_no_table(uri)


def test_tables_are_not_converted(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    with pytest.raises(deltic.TableExistsError):
        deltic.convert(uri)
    outer = str(Path(uri).parent)
    with pytest.raises(deltic.InvalidInputError, match="`table` is a Delta table of its own"):
        deltic.convert(outer)


@pytest.mark.parametrize("path", ["_spark_metadata/0", ".hoodie/hoodie.properties"])
def test_tables_of_other_formats_are_refused(uri: str, path: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    Path(uri, path).parent.mkdir()
    Path(uri, path).write_text("{}")
    with pytest.raises(deltic.UnsupportedFeatureError, match="says which files are live"):
        deltic.convert(uri)


def test_values_that_look_like_paths_are_values(uri: str) -> None:
    values = ["http://x/y", "/home", "..", "50%", "a=b", "Zürich"]
    for number, value in enumerate(values):
        store(uri, f"u={quote(value, safe='')}/{number}.parquet", {"id": [number]})
    store(uri, "u=Zürich/6.parquet", {"id": [6]})
    deltic.convert(uri, partition_schema={"u": "string"})
    found = {row["id"]: row["u"] for row in rows(uri)}
    assert found == dict(enumerate([*values, "Zürich"]))
    # Paths are spelled as by java.net.URI, since delta-spark's VACUUM compares them as strings.
    assert {"u=Zürich/6.parquet", "u=Z%25C3%25BCrich/5.parquet"} < set(adds(uri))


def test_links_to_folders_and_names_not_in_utf8_are_refused(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    other = Path(uri).parent / "other"
    store(str(other), "2.parquet", {"id": [2]})
    Path(uri, "linked").symlink_to(other)
    with pytest.raises(deltic.InvalidInputError, match=r"(?s)linked.*link to a folder|link to a folder.*linked"):
        deltic.convert(uri)
    Path(uri, "linked").unlink()
    Path(uri, "linked.parquet").symlink_to(other / "2.parquet")
    assert deltic.convert(uri, dry_run=True).num_files == 2
    Path(os.fsdecode(os.fsencode(uri) + b"/\xff.parquet")).write_bytes(b"x")
    with pytest.raises(deltic.InvalidInputError, match="not UTF-8"):
        deltic.convert(uri)


@pytest.mark.parametrize("path", ["file:/1.parquet", "a:b.parquet", "d=10:30/1.parquet"])
def test_paths_with_a_colon_are_refused(uri: str, path: str) -> None:
    store(uri, path, {"id": [1]})
    with pytest.raises(deltic.InvalidInputError, match="has a colon"):
        deltic.convert(uri, partition_schema={"d": "string"} if "=" in path else None)


def test_an_empty_folder_is_no_table(uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError, match="nothing to convert"):
        deltic.convert(uri)
    Path(uri).mkdir()
    with pytest.raises(deltic.TableNotFoundError, match="nothing to convert"):
        deltic.convert(uri)


@pytest.mark.parametrize("key", ["delta.columnMapping.mode", "delta.constraints.c", "delta.enableIcebergCompatV2"])
def test_properties_with_requirements_on_files_are_refused(uri: str, key: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    with pytest.raises(deltic.InvalidInputError, match=key):
        deltic.convert(uri, properties={key: "true"})


def test_properties_without_requirements_are_accepted(uri: str) -> None:
    store(uri, "1.parquet", {"id": [1]})
    deltic.convert(uri, properties={"delta.columnMapping.mode": "none"})
    assert rows(uri) == [{"id": 1}]


def test_one_of_several_conversions_wins_and_no_file_is_deleted(uri: str) -> None:
    for number in range(20):
        store(uri, f"{number}.parquet", {"id": [number]})

    def attempt(_: int) -> int | None:
        try:
            return deltic.convert(uri).version
        except deltic.TableExistsError:
            return None

    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(attempt, range(8)))
    assert sorted(map(str, versions)) == ["0", *["None"] * 7]
    assert sorted(row["id"] for row in rows(uri)) == list(range(20))


def test_dates_before_the_gregorian_calendar_are_found(uri: str) -> None:
    store(
        uri, "1.parquet", {"at": [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc)]}
    )
    deltic.convert(uri)
    assert deltic.Table(uri).scan(filter="at < TIMESTAMP '0002-01-01 00:00:00'").count() == 1


def test_from_the_shell(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    store(uri, "day=2013-01-01/1.parquet", {"id": [1, 2]})
    assert main(["convert", uri, "--partition", "day=date", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["id  long", "day  date"]
    assert main(["convert", uri, "--partition", "day=date", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["version"], output["files"], output["rows"]) == (0, 1, 2)
    with pytest.raises(SystemExit):
        main(["convert", uri, "--partition", "day"])
    assert "write day=TYPE, such as day=string" in capsys.readouterr().err
    assert main(["convert", uri]) == 1
    assert "there is a table already" in capsys.readouterr().err
