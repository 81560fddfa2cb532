"""OPTIMIZE in Python: the same rows in fewer or better clustered files, and concurrent writers."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, IDS, MAPPED, VECTORS, files_of
from log_files import Log, field, metadata, protocol, struct
from sample import every_type

import deltic
from deltic import InvalidInputError, Table, cli


def made(uri: str, files: int = 6, rows: int = 10, **options: Any) -> Table:
    """A table of some files, each with different rows."""
    for file in range(files):
        first = file * rows
        data = pa.table({"id": range(first, first + rows), "part": [f"p{file % 2}"] * rows})
        deltic.write(uri, data, **(options if file == 0 else {}))
    return Table(uri)


def ids(table: Any) -> list[int]:
    return [row["id"] for row in table.scan(columns=["id"]).to_arrow().to_pylist()]


def tracked(table: Table) -> list[tuple[Any, ...]]:
    columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    return sorted(tuple(row.values()) for row in table.scan(columns=columns).to_arrow().to_pylist())


@pytest.mark.slow
def test_small_files_become_one(uri: str) -> None:
    table = made(uri)
    result = table.optimize()
    assert (result.versions, result.read_version, result.layout) == ([6], 5, "compact")
    assert (result.files_total, result.files_considered, result.files_to_rewrite, result.files_skipped) == (6, 6, 6, 0)
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (6, 1)
    assert ids(table) == list(range(60)), "rows keep their order"
    assert table.snapshot().num_files == 1
    assert table.check(files=True).ok
    again = table.optimize()
    assert (again.versions, again.files_to_rewrite, again.files_skipped) == ([], 0, 1)
    assert table.snapshot().version == 6


def test_history_records_an_optimize(uri: str) -> None:
    table = made(uri, partition_by=["part"])
    result = table.optimize("part = 'p1'")
    entry = table.history(limit=1)[0]
    assert entry["operation"] == "OPTIMIZE"
    assert entry["operationParameters"] == {
        "predicate": "[\"part = 'p1'\"]",
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": False,
    }
    assert entry["isBlindAppend"] is False
    assert {name: int(value) for name, value in entry["operationMetrics"].items()} == dict(result.metrics)
    assert set(result.metrics) == {
        "maxFileSize",
        "minFileSize",
        "numAddedBytes",
        "numAddedFiles",
        "numDeletionVectorsRemoved",
        "numRemovedBytes",
        "numRemovedFiles",
        "p25FileSize",
        "p50FileSize",
        "p75FileSize",
    }
    for kind in ("add", "remove"):
        assert {action["dataChange"] for action in Log(uri).of(6, kind)} == {False}


def test_each_partition_is_optimized_separately(uri: str) -> None:
    table = made(uri, partition_by=["part"])
    some = table.optimize("part = 'p1'")
    assert (some.files_total, some.files_considered, some.files_to_rewrite) == (6, 3, 3)
    assert some.partitions == [
        {"values": {"part": "p1"}, "files": 3, "bytes": some.bytes_to_rewrite, "expected_files": 1}
    ]
    rest = table.optimize()
    assert (rest.files_considered, rest.files_to_rewrite, rest.partitions_optimized) == (4, 3, 1)
    assert sorted(ids(table)) == list(range(60))
    assert table.snapshot().num_files == 2


@pytest.mark.parametrize("condition", ["upper(part) = 'P1'", "part LIKE '%1'", "length(part) = 2 AND part <> 'p0'"])
def test_conditions_on_partitions_are_evaluated(uri: str, condition: str) -> None:
    assert made(uri, partition_by=["part"]).optimize(condition, dry_run=True).files_considered == 3


@pytest.mark.parametrize("arguments", [{}, {"zorder_by": ["x"]}], ids=["compact", "z-order"])
def test_the_spelling_of_partition_values_is_kept(uri: str, arguments: dict[str, Any]) -> None:
    # A timestamp without offset, as Hive writes partition values.
    spelled = {"t": "2020-01-01 00:00:00", "n": None}
    log = Log.empty(
        uri,
        protocol(),
        metadata(struct(field("t", "timestamp"), field("n", "string"), field("x", "long")), ("t", "n")),
    )
    for number in range(2):
        log.append([log.file(f"part-{number}.parquet", pa.table({"x": [number]}), partitionValues=spelled)])
    version = log.table.optimize(**arguments).versions[-1]
    assert [add["partitionValues"] for add in log.of(version, "add")] == [spelled]


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, "argument", "property"])
def test_files_are_packed_up_to_the_target_size(uri: str, size: str | None) -> None:
    table = made(uri)
    file = max(pa.table(table.files())["size"].to_pylist())
    target = 2 * file + file // 2
    if size == "property":
        table.set_properties({"delta.targetFileSize": str(target)})
    result = table.optimize(target_file_size=target if size == "argument" else None)
    assert result.target_file_size == (1 << 30 if size is None else target)
    assert result.metrics["numAddedFiles"] == (1 if size is None else 3)
    assert ids(table) == list(range(60))


@pytest.mark.slow
def test_a_dry_run_writes_nothing(uri: str) -> None:
    table = made(uri, partition_by=["part"])
    before = files_of(uri)
    result = table.optimize(dry_run=True)
    assert (result.dry_run, result.versions, dict(result.metrics)) == (True, [], {})
    assert (result.files_to_rewrite, result.expected_files, result.partitions_optimized) == (6, 2, 2)
    assert result.bytes_to_rewrite == sum(pa.table(table.files())["size"].to_pylist())
    assert (files_of(uri), table.snapshot().version) == (before, 5)
    assert "would rewrite" in repr(result)
    assert "dry run" in result._repr_html_()
    done = table.optimize()
    assert (done.files_to_rewrite, done.bytes_to_rewrite) == (result.files_to_rewrite, result.bytes_to_rewrite)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "id = 3"}, "`id` is not one"),
        ({"where": "part = 'p0' AND id > 3"}, "`id` is not one"),
        ({"where": "nothing = 3"}, "no column `nothing`"),
        ({"where": "part ="}, "expected"),
        ({"where": 3}, "where must be a string of SQL"),
        ({"zorder_by": ["nothing"]}, "no column `nothing`"),
        ({"zorder_by": ["part"]}, "partition column `part`"),
        ({"zorder_by": ["id", "ID"]}, "twice"),
        ({"zorder_by": ""}, "it is empty"),
        ({"zorder_by": 3}, "zorder_by must be a list of names"),
        ({"zorder_by": []}, "names no column"),
        ({"full": True}, "no clustering columns"),
        ({"target_file_size": 0}, "target_file_size must be a whole number from 1"),
        ({"max_tasks": 0}, "max_tasks must be a whole number from 1"),
        ({"dry_run": 1}, "dry_run must be True or False"),
    ],
)
def test_invalid_arguments_are_refused(uri: str, arguments: dict[str, Any], message: str) -> None:
    table = made(uri, files=2, partition_by=["part"])
    for dry_run in (False, True):
        with pytest.raises(InvalidInputError) as refused:
            table.optimize(**{"dry_run": dry_run, **arguments})
        assert message in str(refused.value)
    assert table.snapshot().version == 1


@pytest.mark.parametrize("column", ["array", "map", "struct", "array_of_structs"])
def test_columns_without_an_order_are_refused(uri: str, column: str) -> None:
    deltic.write(uri, every_type(4))
    with pytest.raises(InvalidInputError, match=f"cannot be ordered by `{column}`"):
        Table(uri).optimize(zorder_by=["id", column])


def test_names_with_dots_and_backticks_order_rows(uri: str) -> None:
    rows = [{"a.b": at, "s": {"c.d": -at}} for at in range(4)]
    deltic.write(uri, pa.Table.from_pylist(rows[:2]), properties=MAPPED)
    deltic.write(uri, pa.Table.from_pylist(rows[2:]))
    table = Table(uri)
    for names in (["a.b"], ["`a.b`"], ["s.`c.d`"], ["`s`.`c.d`", "`a.b`"]):
        assert table.optimize(zorder_by=names).versions
    assert table.scan().to_arrow().sort_by("a.b").to_pylist() == rows
    with pytest.raises(InvalidInputError, match="zorder_by"):
        table.optimize(zorder_by=["`a"])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["compact", "zorder"])
@pytest.mark.parametrize("properties", [{}, VECTORS, IDS, VECTORS | IDS | FEED, MAPPED | IDS], ids=str)
def test_rows_and_ids_stay(uri: str, properties: dict[str, str], layout: str) -> None:
    table = made(uri, properties=properties, partition_by=["part"])
    table.delete("id % 7 = 3")
    table.delete("id BETWEEN 20 AND 24")
    table.checkpoint()
    for part in ("p0", "p1"):
        deltic.write(uri, pa.table({"id": [2000, 2001], "part": [part] * 2}))
    with_ids = "delta.enableRowTracking" in properties
    before = tracked(table) if with_ids else sorted(ids(table))
    vectors = sum(1 for name in files_of(uri) if name.startswith("deletion_vector"))
    result = table.optimize(zorder_by=["id"] if layout == "zorder" else None)
    assert (tracked(table) if with_ids else sorted(ids(table))) == before
    assert (result.metrics["numDeletionVectorsRemoved"] > 0) == (vectors > 0)
    assert not any("deletionVector" in add for add in Log(uri).of(result.versions[0], "add"))
    assert table.check(files=True).ok
    if FEED.items() <= properties.items():
        version = result.versions[0]
        assert pa.table(table.changes(version, version).to_reader()).num_rows == 0
        assert not Log(uri).of(version, "cdc")
    # Row ids stay unique.
    deltic.write(uri, pa.table({"id": [1000], "part": ["p0"]}))
    if with_ids:
        assert len({row[1] for row in tracked(table)}) == len(before) + 1


@pytest.mark.slow
def test_a_table_where_rows_may_only_be_added_is_optimized(uri: str) -> None:
    table = made(uri, properties={"delta.appendOnly": "true"})
    assert table.optimize().metrics["numAddedFiles"] == 1
    assert ids(table) == list(range(60))


def test_a_file_with_many_deleted_rows_is_written_again(uri: str) -> None:
    table = made(uri, files=1, rows=100, properties=VECTORS)
    table.delete("id < 5")
    assert table.optimize().versions == [], "five of a hundred deleted rows are too few"
    table.delete("id = 5")
    assert table.optimize().metrics["numDeletionVectorsRemoved"] == 1
    assert ids(table) == list(range(6, 100))


def test_files_without_rows_are_removed(uri: str) -> None:
    table = made(uri, files=2, properties=VECTORS)
    with table.transaction() as tx:
        tx.delete("id < 9")
    table.delete("id BETWEEN 11 AND 18")
    table.delete("id IN (9, 10)")
    result = table.optimize(zorder_by="id")
    assert (result.metrics["numAddedFiles"], result.columns) == (1, ["id"])
    assert ids(table) == [19]


def test_a_table_without_files_has_nothing_to_optimize(uri: str) -> None:
    deltic.create(uri, pa.schema([("a", pa.int64())]))
    for arguments in ({}, {"zorder_by": ["a"]}):
        assert Table(uri).optimize(**arguments).versions == []


@pytest.mark.slow
def test_every_type_is_copied(uri: str) -> None:
    for rows in (4, 50, 120):
        deltic.write(uri, every_type(rows))
    table = Table(uri)
    before = Counter(map(repr, table.scan().to_arrow().to_pylist()))
    for arguments in ({}, {"zorder_by": ["string", "double", "struct.x"]}):
        table.optimize(**arguments)
        assert Counter(map(repr, table.scan().to_arrow().to_pylist())) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "column",
    ["byte", "integer", "float", "double", "boolean", "string", "binary", "date", "timestamp", "decimal", "struct.x"],
)
def test_any_type_with_an_order_orders_rows(uri: str, column: str) -> None:
    rows = every_type(200).slice(3).to_pylist()
    random.Random(5).shuffle(rows)
    nulls = [{**row, "struct": None, "byte": None, "string": None} for row in rows[:20]]
    deltic.write(uri, pa.Table.from_pylist(rows + nulls, schema=every_type(4).schema))
    table = Table(uri)
    size = pa.table(table.files())["size"].to_pylist()[0]
    result = table.optimize(zorder_by=[column], target_file_size=size // 5)
    assert result.metrics["numAddedFiles"] == 5
    values = []
    name, _, inner = column.partition(".")
    for row in table.scan().to_arrow().to_pylist():
        value = row[name]
        values.append((value or {}).get(inner) if inner else value)
    # The scan returns files by name, and rows within a file in the order of the curve.
    counts = pa.table(table.files())["num_records"].to_pylist()
    starts = [0, *itertools.accumulate(counts)]
    parts = sorted((values[a:b] for a, b in itertools.pairwise(starts)), key=lambda part: _key(part[0]))
    flat = [_key(value) for part in parts for value in part]
    assert flat == sorted(flat)


def _key(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, value)


def skipped(table: Table, columns: list[str], width: int, most: int) -> float:
    """The average share of files that a condition on one of the columns skips."""
    shares = []
    for column in columns:
        for low in range(0, most, width):
            plan = table.plan(filter=f"{column} >= {low} AND {column} < {low + width}")
            shares.append(1 - plan.files_kept / plan.files_total)
    return sum(shares) / len(shares)


@pytest.mark.slow
def test_a_z_order_lets_queries_skip_as_much_as_in_the_paper(uri: str) -> None:
    """The experiment of the Delta paper: 100 files, four columns, 54 % of the files skipped on average."""
    chance, columns, most = random.Random(1), ["a", "b", "c", "d"], 10_000
    rows = 50_000
    deltic.write(uri, pa.table({name: [chance.randrange(most) for _ in range(rows)] for name in columns}))
    table = Table(uri)
    size = pa.table(table.files())["size"].to_pylist()[0]
    result = table.optimize(zorder_by=columns, target_file_size=size // 100)
    assert result.metrics["numAddedFiles"] == 100
    assert skipped(table, columns, most // 1000, most) >= 0.54


def clustered(uri: str, columns: list[str], properties: dict[str, str]) -> Table:
    schema = pa.schema([(name, pa.int64()) for name in ["a", "b", "c"]])
    deltic.create(uri, schema, cluster_by=columns, properties=properties)
    return Table(uri)


def rows_of(count: int, seed: int) -> pa.Table:
    chance = random.Random(seed)
    return pa.table({name: [chance.randrange(1000) for _ in range(count)] for name in ["a", "b", "c"]})


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, IDS, MAPPED], ids=str)
def test_clustered_tables_are_optimized_only_after_new_rows(uri: str, properties: dict[str, str]) -> None:
    table = clustered(uri, ["a", "c"], properties)
    for seed in range(4):
        deltic.write(uri, rows_of(500, seed))
    before = Counter(map(repr, table.scan().to_arrow().to_pylist()))
    result = table.optimize()
    assert (result.layout, result.columns, result.metrics["numAddedFiles"]) == ("hilbert", ["a", "c"], 1)
    (add,) = Log(uri).of(result.versions[0], "add")
    assert add["clusteringProvider"] == "liquid"
    assert json.loads(add["tags"]["ZCUBE_ZORDER_BY"]) == ["a", "c"]
    assert table.history(limit=1)[0]["operationParameters"]["clusterBy"] == '["a","c"]'
    assert table.optimize().versions == [], "no rows were added"
    table.checkpoint()
    assert Table(uri).optimize().versions == [], "a checkpoint keeps the clustering tags"
    deltic.write(uri, rows_of(100, 9))
    assert table.optimize().files_to_rewrite == 2
    assert table.optimize().versions == []
    size = pa.table(table.files())["size"].to_pylist()[0]
    full = table.optimize(full=True, target_file_size=size // 8)
    assert full.metrics["numAddedFiles"] == 8
    more = Counter(map(repr, rows_of(100, 9).to_pylist()))
    assert Counter(map(repr, table.scan().to_arrow().to_pylist())) == before + more
    assert skipped(table, ["a", "c"], 10, 1000) > 0.4
    with pytest.raises(InvalidInputError, match="leave zorder_by out"):
        table.optimize(zorder_by=["a"])


@pytest.mark.slow
def test_appends_do_not_conflict_with_optimize(uri: str) -> None:
    table = made(uri, files=20)

    def append(number: int) -> None:
        deltic.write(uri, pa.table({"id": [1000 + number], "part": ["p9"]}))

    with ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(append, number) for number in range(12)]
        optimized = [pool.submit(Table(uri).optimize) for _ in range(1)]
        for done in [*appends, *optimized]:
            done.result()
    assert sorted(ids(table)) == [*range(200), *range(1000, 1012)]
    assert table.check(files=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS, IDS | VECTORS], ids=str)
def test_concurrent_deletes_and_optimizes_match_a_model(uri: str, properties: dict[str, str]) -> None:
    table = made(uri, files=24, properties=properties, partition_by=["part"])
    gone = [number for number in range(240) if number % 10 == 4]

    def delete(some: list[int]) -> None:
        for number in some:
            while True:
                try:
                    Table(uri).delete(f"id = {number}")
                    break
                except deltic.CommitConflictError:
                    continue

    def optimize(_: int) -> None:
        for _ in range(5):
            Table(uri).optimize(target_file_size=8000)

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(delete, gone[:12]), pool.submit(delete, gone[12:])]
        work += [pool.submit(optimize, number) for number in range(2)]
        for done in work:
            done.result()
    assert sorted(ids(table)) == [number for number in range(240) if number not in gone]
    assert table.check(files=True).ok
    if "delta.enableRowTracking" in properties:
        assert len({row[1] for row in tracked(table)}) == 240 - len(gone)


def test_older_versions_are_unchanged(uri: str) -> None:
    table = made(uri)
    for arguments in ({}, {"zorder_by": ["id"]}):
        table.optimize(**arguments)
    for version in range(6):
        assert sorted(ids(table.snapshot(version))) == list(range(10 * (version + 1)))


def test_files_with_narrower_types_are_rewritten(uri: str) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    deltic.write(
        uri, pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, None], pa.int16())}), properties=properties
    )
    table = Table(uri)
    table.alter_column("a", type="long")
    deltic.write(uri, pa.table({"a": pa.array([3], pa.int32()), "b": pa.array([3], pa.int16())}))
    table.optimize()
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == [
        "{'a': 1, 'b': 1}",
        "{'a': 2, 'b': None}",
        "{'a': 3, 'b': 3}",
    ]


def test_partition_values_of_every_kind_stay(uri: str) -> None:
    days = [date(2024, 1, 1) + timedelta(days=n) for n in range(2)]
    data = pa.table(
        {
            "id": range(8),
            "day": [days[n % 2] for n in range(8)],
            "text": ["a b/c=d%", None] * 4,
            "money": [Decimal("1.50"), Decimal("2.00")] * 4,
        }
    )
    for part in range(4):
        deltic.write(uri, data.slice(part * 2, 2), partition_by=["day", "text", "money"])
    table = Table(uri)
    before = sorted(map(repr, table.scan().to_arrow().to_pylist()))
    result = table.optimize("day = DATE '2024-01-01' OR text IS NULL")
    assert (result.partitions_optimized, result.metrics["numAddedFiles"]) == (2, 2)
    assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == before


@pytest.mark.slow
def test_the_command_line_optimizes(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = made(uri, partition_by=["part"])
    assert cli.main(["optimize", uri, "--dry-run"]) == 0
    assert "would rewrite" in capsys.readouterr().out
    assert cli.main(["optimize", uri, "--where", "part = 'p1'", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["versions"], output["metrics"]["numRemovedFiles"]) == ([6], 3)
    assert cli.main(["optimize", uri, "--zorder-by", "id, nothing"]) == 1
    assert "no column `nothing`" in capsys.readouterr().err
    assert cli.main(["optimize", uri, "--zorder-by", "id", "--target-file-size", "100000"]) == 0
    assert "zorder by id" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["optimize"])
    assert sorted(ids(table)) == list(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("renamed", [False, True])
def test_results_name_partitions_by_logical_column_names(uri: str, renamed: bool) -> None:
    table = made(uri, files=4, partition_by=["part"], properties=MAPPED)
    if renamed:
        table.rename_column("part", "place")
    name = "place" if renamed else "part"
    expected = [{name: "p0"}, {name: "p1"}]
    assert [partition["values"] for partition in table.optimize(dry_run=True).partitions] == expected
    assert [partition["values"] for partition in table.optimize().partitions] == expected
    table.set_properties(VECTORS)
    table.delete("id % 2 = 0")
    assert [partition["values"] for partition in table.purge().partitions] == expected
