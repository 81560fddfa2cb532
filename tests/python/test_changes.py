"""The change data feed: of tables of other writers, for ranges and filters, and by each method that returns rows."""

import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import CORPUS, ENTRIES, for_each

import deltic

FEEDS = [(entry, feed) for entry in ENTRIES for feed in entry["expected_cdf"] or []]

ON = {"delta.enableChangeDataFeed": "true"}
FEED_COLUMNS = ["_change_type", "_commit_version", "_commit_timestamp"]


def shown(value: Any) -> str:
    """A value in the format of the expected tables."""
    match value:
        case None:
            return ""
        case datetime():
            return str(value.replace(tzinfo=None))
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{name}: {shown(inner)}" for name, inner in value.items()) + "}"
        case _:
            return str(value)


def lines(table: pa.Table, names: list[str]) -> Counter[tuple[str, ...]]:
    """The rows as strings, in a multiset."""
    columns = [table.column(name).to_pylist() for name in names]
    return Counter(tuple(shown(value) for value in row) for row in zip(*columns, strict=True))


def expected_lines(path: Path) -> tuple[list[str], Counter[tuple[str, ...]]]:
    """Column names and rows of an expected feed, from Parquet or from a text table with bars."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return table.column_names, lines(table, table.column_names)
    rows = [line.strip().strip("|").split("|") for line in path.read_text().splitlines() if line.startswith("|")]
    names, *values = [[cell.strip() for cell in row] for row in rows]
    return names, Counter(tuple(row) for row in values)


@pytest.mark.slow
@for_each("entry, feed", FEEDS, [f"{entry['id']}-{feed['start']}-{feed['end']}" for entry, feed in FEEDS])
def test_feeds_of_other_writers(entry: dict[str, Any], feed: dict[str, Any]) -> None:
    changes = deltic.Table(CORPUS / entry["table_path"]).changes(feed["start"], feed["end"])
    assert changes.schema.names == [*entry["columns"], *FEED_COLUMNS]
    names, expected = expected_lines(CORPUS / feed["path"])
    table = changes.to_arrow()
    assert table.schema == changes.schema
    assert set(changes.schema.names) - set(names) <= {"_commit_timestamp"}
    assert lines(table, names) == expected
    # The feeds of single versions together are the feed of the range.
    parts = [deltic.Table(CORPUS / entry["table_path"]).changes(v, v).to_arrow() for v in changes.versions]
    assert lines(pa.concat_tables(parts, promote_options="default"), names) == expected


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of two appends and an overwrite."""
    where = str(tmp_path / "table")
    deltic.write(where, pa.table({"n": [1, 2]}), properties=ON)
    deltic.write(where, pa.table({"n": [3]}))
    deltic.write(where, pa.table({"n": [4]}), mode="overwrite")
    for version in range(3):
        log = tmp_path / "table" / "_delta_log" / f"{version:020}.json"
        os.utime(log, (1_700_000_000 + version, 1_700_000_000 + version))
    return where


def changed(changes: deltic.Changes) -> list[tuple[int, str, int]]:
    rows = changes.to_arrow().select(["_commit_version", "_change_type", "n"]).to_pylist()
    return sorted((row["_commit_version"], row["_change_type"], row["n"]) for row in rows)


EVERYTHING = [
    (0, "insert", 1),
    (0, "insert", 2),
    (1, "insert", 3),
    (2, "delete", 1),
    (2, "delete", 2),
    (2, "delete", 3),
    (2, "insert", 4),
]


def when(seconds: float) -> datetime:
    return datetime.fromtimestamp(1_700_000_000, tz=timezone.utc) + timedelta(seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "end", "versions"),
    [
        (None, None, [0, 1, 2]),
        (1, None, [1, 2]),
        (1, 1, [1]),
        (None, 0, [0]),
        (when(1), None, [1, 2]),
        (when(0.5), when(1.5), [1]),
        # Commits have whole milliseconds.
        (when(1.0005), when(1.9), []),
        (when(1.1), when(1.2), []),
        (when(-1000), when(1_000_000), [0, 1, 2]),
        (0, "2023-11-14T22:13:21Z", [0, 1]),
        ("2023-11-14 22:13:22", 2, [2]),
    ],
)
def test_ranges(uri: str, start: Any, end: Any, versions: list[int]) -> None:
    changes = deltic.Table(uri).changes(start, end)
    assert list(changes.versions) == versions
    assert changed(changes) == [row for row in EVERYTHING if row[0] in versions]


def test_schema(uri: str) -> None:
    utc = pa.timestamp("us", "UTC")
    own = [("_change_type", pa.string()), ("_commit_version", pa.int64()), ("_commit_timestamp", utc)]
    changes = deltic.Table(uri).changes()
    assert [(field.name, field.type) for field in changes.schema] == [("n", pa.int64()), *own]
    assert set(changes.to_arrow()["_commit_timestamp"].to_pylist()) == {when(0), when(1), when(2)}
    assert repr(changes) == f"Changes(columns={['n', *FEED_COLUMNS]}, versions=range(0, 3))"


def test_columns_and_filter(uri: str) -> None:
    table = deltic.Table(uri)
    filtered = table.changes(columns=["n"], filter="_change_type = 'delete' AND _commit_version = 2 AND n <> 2")
    assert sorted(filtered.to_arrow().to_pydict()["n"]) == [1, 3]
    for arguments in ({"columns": ["x"]}, {"columns": "n"}, {"filter": "x = 1"}):
        with pytest.raises(deltic.InvalidInputError):
            table.changes(**arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        lambda changes: changes.to_reader(batch_size=1).read_all()["n"].to_pylist(),
        lambda changes: changes.to_pandas()["n"].tolist(),
        lambda changes: changes.to_polars()["n"].to_list(),
        lambda changes: pa.table(changes)["n"].to_pylist(),
        lambda changes: pa.RecordBatchReader.from_stream(changes).read_all()["n"].to_pylist(),
    ],
    ids=["reader", "pandas", "polars", "c_stream", "c_reader"],
)
def test_output_formats(uri: str, numbers: Callable[[deltic.Changes], list[int]]) -> None:
    changes = deltic.Table(uri).changes()
    # A feed can be read again.
    for _ in range(2):
        assert sorted(numbers(changes)) == [1, 1, 2, 2, 3, 3, 4]


def test_nothing_is_read_before_it_is_asked_for(uri: str) -> None:
    table = deltic.Table(uri)
    changes = table.changes()
    before = table.request_counts()["gets"]
    rows = changes.to_reader()
    assert table.request_counts()["gets"] == before
    assert rows.read_next_batch().num_rows > 0
    assert table.request_counts()["gets"] > before


def test_a_feed_is_data_for_a_table(uri: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    deltic.write(copy, deltic.Table(uri).changes().to_reader())
    assert deltic.Table(copy).scan().to_arrow().num_rows == len(EVERYTHING)


@pytest.mark.parametrize("end", ["tomorrow", -1, 1.5, True, b"1"])
def test_invalid_ends_are_refused(uri: str, end: Any) -> None:
    for arguments in ({"start": end}, {"end": end}):
        with pytest.raises(deltic.InvalidInputError):
            deltic.Table(uri).changes(**arguments)


def test_refusals(uri: str, tmp_path: Path) -> None:
    table = deltic.Table(uri)
    with pytest.raises(deltic.InvalidInputError, match="version 2"):
        table.changes(2, 1)
    with pytest.raises(deltic.VersionNotFoundError, match="no version 3"):
        table.changes(3)
    with pytest.raises(deltic.VersionNotFoundError, match="no version 9"):
        table.changes(0, 9)
    with pytest.raises(deltic.VersionNotFoundError, match="after the newest commit"):
        table.changes(when(3))
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(tmp_path / "nothing").changes()

    off = str(tmp_path / "off")
    deltic.write(off, pa.table({"n": [1]}))
    with pytest.raises(deltic.InvalidInputError, match=r"delta\.enableChangeDataFeed") as refused:
        deltic.Table(off).changes()
    assert refused.value.version == 0

    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    with pytest.raises(deltic.VersionNotFoundError, match="VACUUM") as gone:
        table.changes().to_arrow()
    assert str(gone.value.path).endswith(".parquet")


@pytest.mark.parametrize("way", ["restore", "overwrite"])
def test_removed_rows_of_another_type_are_refused_by_name(tmp_path: Path, way: str) -> None:
    uri = str(tmp_path / "table")
    properties = ON | {"delta.enableTypeWidening": "true"}
    deltic.write(uri, pa.table({"s": [{"n": 1}], "gone": ["x"]}, narrow(pa.int32())), properties=properties)
    table = deltic.Table(uri)
    table.alter_column("s.n", type="long")
    deltic.write(table, pa.table({"s": [{"n": 2**40}], "gone": ["y"]}, narrow(pa.int64())))
    if way == "restore":
        table.restore(0)
    else:
        rows = pa.table({"s": [{"n": "text"}]})
        deltic.write(table, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        deltic.UnsupportedFeatureError, match=r"`s\.n` was a long and became an? (integer|string)"
    ) as refused:
        table.changes(3, 3).to_arrow()
    assert refused.value.version == 3
    assert "ends before version 3 and one that starts after it" in str(refused.value)
    deltic.write(table, table.scan().to_arrow())
    assert table.changes(4).to_arrow().num_rows == 1
    assert table.changes(0, 2).to_arrow().num_rows == 2


def narrow(number: pa.DataType) -> pa.Schema:
    return pa.schema({"s": pa.struct({"n": number}), "gone": pa.string()})


def test_removed_rows_are_read_without_dropped_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    deltic.write(uri, pa.table({"n": [1], "gone": ["x"]}), properties=ON)
    deltic.write(uri, pa.table({"n": [2]}), mode="overwrite", schema_mode="overwrite")
    rows = deltic.Table(uri).changes(1, 1).to_arrow()
    assert sorted(zip(rows["n"].to_pylist(), rows["_change_type"].to_pylist(), strict=True)) == [
        (1, "delete"),
        (2, "insert"),
    ]
