"""Plans and scans: skipped files, returned rows, and lazy reads."""

import datetime
import operator
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import hypothesis
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from sample import every_type, rows

import deltic


@pytest.fixture
def trips(uri: str) -> deltic.Table:
    """Three months with two files each, whose ranges of `km` do not overlap."""
    for month in (1, 2, 3):
        for low in (0, 100):
            km = pa.array([low + i for i in range(10)], pa.int32())
            deltic.write(uri, pa.table({"month": [month] * 10, "km": km}), partition_by=["month"])
    return deltic.Table(uri)


def test_a_plan_has_numbers_of_skipped_files_by_reason(trips: deltic.Table) -> None:
    plan = trips.plan(filter="month = 2 AND km >= 100")
    assert (plan.files_total, plan.files_kept) == (6, 1)
    assert plan.skipped == {"partition": 4, "statistics": 1}
    assert 0 < plan.bytes_kept < plan.bytes_total
    assert plan.bytes_total == sum(trips.files().read_all()["size"].to_pylist())
    assert len(plan.tasks) == plan.files_kept
    assert plan.to_arrow()["path"].to_pylist()[0].startswith("month=2/")
    assert "1/6" in repr(plan)


def test_a_plan_without_filter_keeps_all(trips: deltic.Table) -> None:
    plan = trips.plan()
    assert plan.files_kept == plan.files_total == 6
    assert not any(plan.skipped.values())


def test_task_groups_hold_every_file_once(trips: deltic.Table) -> None:
    plan = trips.plan()
    assert len(plan.task_groups(4)) <= 4
    assert len(plan.task_groups(100)) == 6
    assert all(isinstance(group, bytes) for group in plan.task_groups(2))
    assert trips.plan(filter="month = 9").task_groups(4) == []


def test_columns_are_in_the_requested_order(trips: deltic.Table) -> None:
    scan = trips.scan(columns=["km", "month"])
    assert scan.schema.names == ["km", "month"]
    assert scan.to_arrow().schema.equals(scan.schema)
    assert trips.scan(columns=["month"]).to_arrow().schema.names == ["month"]


def test_a_filter_on_a_column_that_is_not_returned(trips: deltic.Table) -> None:
    assert sorted(trips.scan(columns=["month"], filter="km = 105").to_arrow()["month"].to_pylist()) == [1, 2, 3]


def test_a_string_instead_of_a_list_of_columns_is_refused(trips: deltic.Table) -> None:
    with pytest.raises(deltic.InvalidInputError, match="list"):
        trips.scan(columns="month")  # type: ignore[arg-type]


@pytest.mark.slow
def test_all_output_formats_have_the_same_rows(trips: deltic.Table) -> None:
    scan = trips.scan(filter="km < 3 OR km > 107")
    expected = rows(scan.to_arrow())
    assert expected.total() == 3 * 5
    assert rows(pa.table(scan)) == expected
    assert rows(scan.to_reader().read_all()) == expected
    assert rows(pa.Table.from_pandas(scan.to_pandas(), preserve_index=False)) == expected
    assert rows(scan.to_polars().to_arrow()) == expected
    assert rows(polars.DataFrame(scan).to_arrow()) == expected
    assert rows(duckdb.sql("SELECT * FROM scan").to_arrow_table()) == expected
    assert pa.schema(scan).equals(scan.schema)


def test_an_empty_result_has_its_schema(trips: deltic.Table) -> None:
    table = trips.scan(filter="km = 77777").to_arrow()
    assert table.num_rows == 0
    assert table.schema.names == ["month", "km"]
    assert trips.scan(filter="month IS NULL").to_pandas().empty


@pytest.mark.slow
def test_streams_are_lazy(uri: str) -> None:
    for part in range(50):
        deltic.write(uri, pa.table({"part": [part] * 10, "v": list(range(10))}), partition_by=["part"])
    table = deltic.Table(uri)
    scan = table.scan()

    def requests() -> int:
        return table.request_counts()["gets"]

    planned = requests()
    reader = scan.to_reader()
    assert requests() == planned, "nothing is read before the first batch is requested"
    first = reader.read_next_batch()
    assert first.num_rows > 0
    after_one = requests()
    del reader
    scan.to_arrow()
    assert after_one - planned < (requests() - after_one) / 2, "one batch does not read the whole table"


def test_batch_size_is_a_limit(uri: str) -> None:
    deltic.write(uri, pa.table({"v": list(range(1000))}))
    sizes = [batch.num_rows for batch in deltic.Table(uri).scan().to_reader(batch_size=64)]
    assert max(sizes) <= 64
    assert sum(sizes) == 1000


def test_a_reader_can_be_dropped_half_way(uri: str) -> None:
    deltic.write(uri, pa.table({"v": list(range(10_000))}))
    for _ in range(20):
        deltic.Table(uri).scan().to_reader(batch_size=10).read_next_batch()


def test_files_is_a_stream_of_add_actions(trips: deltic.Table) -> None:
    files = trips.files("month = 3").read_all()
    assert files.num_rows == 2
    assert files["num_records"].to_pylist() == [10, 10]
    assert [part["month"] for part in files["partition"].to_pylist()] == [3, 3]
    assert sorted(bound["km"] for bound in files["min"].to_pylist()) == [0, 100]
    assert sorted(bound["km"] for bound in files["max"].to_pylist()) == [9, 109]
    assert [count["km"] for count in files["null_count"].to_pylist()] == [0, 0]
    assert all(size > 0 for size in files["size"].to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [False, True])
def test_counts_come_from_the_log(trips: deltic.Table, checkpoint: bool) -> None:
    if checkpoint:
        trips.checkpoint()
    for path in Path(trips.uri).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()
    assert trips.scan().count() == 60
    assert trips.scan(columns=["km"], filter="month = 2").count() == 20
    assert trips.scan(filter="km >= 100 OR month = 1").count() == 40
    assert trips.scan(filter="km > 1000").count() == 0
    with pytest.raises(deltic.CorruptTableError, match="gone"):
        trips.scan(filter="km > 105").count()


def test_counts_are_exact(trips: deltic.Table) -> None:
    assert trips.scan(filter="km > 105").count() == 12
    assert trips.scan(columns=["month"], filter="km = 105 AND month <> 1").count() == 2
    with trips.transaction() as tx:
        tx.append(pa.table({"month": [1], "km": pa.array([7], pa.int32())}))
        assert tx.scan().count() == 61
        assert tx.scan(filter="km = 7").count() == 4


def test_limits_and_heads(trips: deltic.Table) -> None:
    scan = trips.scan(columns=["km", "month"])
    head = scan.head(3)
    assert head.schema.equals(scan.schema)
    assert (head.num_rows, scan.head().num_rows, scan.head(1000).num_rows, scan.head(0).num_rows) == (3, 10, 60, 0)
    limited = scan.limit(25)
    assert limited.to_arrow().num_rows == pa.table(limited).num_rows == limited.to_pandas().shape[0] == 25
    assert [batch.num_rows <= 4 for batch in limited.to_reader(4)] == [True] * len(list(limited.to_reader(4)))
    assert (limited.count(), limited.limit(30).count(), limited.limit(5).count(), scan.limit(99).count()) == (
        25,
        25,
        5,
        60,
    )
    assert scan.to_arrow().num_rows == 60, "limit() returns a new scan"
    assert "limit=25" in repr(limited)
    assert "limit" not in repr(scan)
    assert trips.scan(filter="km = 105").limit(2).to_arrow()["km"].to_pylist() == [105, 105]
    with pytest.raises(deltic.InvalidInputError, match="n must"):
        scan.limit(-1)
    with trips.transaction() as tx:
        assert tx.scan().limit(7).to_arrow().num_rows == tx.scan().head(7).num_rows == 7


def test_a_limit_applies_when_a_scan_is_written(trips: deltic.Table, uri: str) -> None:
    copy = deltic.Table(f"{uri}_copy")
    deltic.write(copy, trips.scan().limit(25))
    assert copy.scan().count() == 25
    deltic.write(copy, trips.scan(filter="month = 2").limit(3))
    with copy.transaction() as tx:
        tx.append(trips.scan().limit(2))
    assert copy.scan().to_arrow().num_rows == 30


def test_a_limit_opens_no_more_files_than_it_needs(trips: deltic.Table) -> None:
    scan = trips.scan()
    scan.head(1)
    before = trips.request_counts()["gets"]
    scan.head(15)
    assert trips.request_counts()["gets"] == before + 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_files_distinguishes_columns_with_dots_and_struct_fields(uri: str, checkpoint: bool) -> None:
    nested = pa.array([{"b": 1, "b.c": 2}])
    deltic.write(uri, pa.table({"a": nested, "a.b": [3], "a.`b": [4], "größe-m": [5]}))
    table = deltic.Table(uri)
    if checkpoint:
        table.checkpoint()
    expected = {"a.b": 1, "a.`b.c`": 2, "`a.b`": 3, "`a.``b`": 4, "größe-m": 5}
    assert table.files().read_all()["min"].to_pylist() == [expected]
    assert table.files().read_all()["null_count"].to_pylist() == [dict.fromkeys(expected, 0)]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize(
    ("column", "structs"),
    [(pa.array([1, 2]), {"min", "max", "null_count"}), (pa.array([[1], []]), set())],
    ids=["bounds", "no bounds"],
)
def test_structs_without_fields_are_left_out(
    uri: str, tmp_path: Path, column: pa.Array, structs: set[str], checkpoint: bool
) -> None:
    deltic.write(uri, pa.table({"a": column}))
    table = deltic.Table(uri)
    if checkpoint:
        table.checkpoint()
    files, tasks = table.files().read_all(), table.plan().tasks
    assert set(files.column_names) == {"path", "size", "modification_time", "num_records"} | structs
    assert tasks.column_names == ["path", "size", "modification_time", "deleted_rows"]
    for found in (files, tasks):
        pq.write_table(found, tmp_path / "found.parquet")
        assert duckdb.sql("SELECT path FROM found").fetchall() == [(found["path"][0].as_py(),)]


@pytest.mark.parametrize(
    ("filter", "found"),
    [(r"a = 'x\ny'", [r"x\ny"]), (r"a = 'x\\ny'", []), (r"a LIKE 'x\%'", ["x%"]), (r"a LIKE 'x\\%'", [r"x\ny"])],
)
def test_backslashes_are_literal_except_in_patterns(uri: str, filter: str, found: list[str]) -> None:
    deltic.write(uri, pa.table({"a": [r"x\ny", "x\ny", "x%"]}))
    assert deltic.Table(uri).scan(filter=filter).to_arrow()["a"].to_pylist() == found


FILTERS = [
    ("id = 3", 1),
    ("id <> 3", 9),
    ("NOT id = 3", 9),
    ("id IN (3, 4, 400)", 2),
    ("id NOT IN (3, 4)", 8),
    ("id BETWEEN 3 AND 5", 3),
    ("integer IS NULL", 1),
    ("integer IS NOT NULL", 9),
    ("integer = 3000 OR integer IS NULL", 2),
    ("NOT (integer = 3000)", 8),
    ("integer <=> NULL", 1),
    ("boolean", 4),
    ("NOT boolean", 5),
    ("string LIKE 'row %'", 7),
    ("string LIKE 'row 5%'", 1),
    ("string = 'žluťoučký kůň 🐎 ''quoted'' \"twice\" \\ \n'", 1),
    ("date = DATE '2013-01-06'", 1),
    ("date < '2013-01-05'", 2),
    ("timestamp >= TIMESTAMP '2013-01-01 00:05:00Z'", 6),
    ("decimal = 1.25", 1),
    ("double > 1.4", 5),
    ("float < -1e30", 1),
    ("binary = X''", 1),
    ("struct.x = 5", 1),
    ("struct.inner.name = 'deep'", 1),
    ("`struct`.`inner`.`name` IS NULL", 2),
    ("byte = -128 AND short > 0", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("filter", "count"), FILTERS)
@pytest.mark.parametrize("files", [1, 5])
def test_filters_are_exact(uri: str, filter: str, count: int, files: int) -> None:
    table = every_type(10)
    step = table.num_rows // files
    for start in range(0, table.num_rows, step):
        deltic.write(uri, table.slice(start, step))
    assert deltic.Table(uri).scan(filter=filter).to_arrow().num_rows == count


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_LITERALS: list[tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], str]]] = [
    (pa.int64(), st.integers(-5, 5), str),
    (pa.string(), st.text("ab'%\\", max_size=3), lambda v: "'" + v.replace("'", "''") + "'"),
    (pa.date32(), st.dates(datetime.date(1969, 12, 28), datetime.date(1970, 1, 4)), lambda v: f"DATE '{v}'"),
    (pa.decimal128(5, 2), st.decimals(-2, 2, places=2), lambda v: format(v, "f")),
    (pa.bool_(), st.booleans(), str),
]


@pytest.mark.slow
@hypothesis.given(data=st.data())
@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_pruning_never_loses_a_row(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind, values, literal = data.draw(st.sampled_from(_LITERALS))
    files = data.draw(st.lists(st.lists(st.none() | values, min_size=1, max_size=4), min_size=1, max_size=4))
    symbol, wanted = data.draw(st.sampled_from(sorted(_COMPARE))), data.draw(values)
    negated = data.draw(st.booleans())
    partitioned = data.draw(st.booleans())

    uri = str(tmp_path_factory.mktemp("prune") / "t")
    for number, column in enumerate(files):
        chunk = pa.table({"c": pa.array(column, kind), "n": pa.array([number] * len(column))})
        deltic.write(uri, chunk, partition_by=["c"] if partitioned else None)
    text = f"c {symbol} {literal(wanted)}"
    if negated:
        text = f"NOT ({text})"
    found = deltic.Table(uri).scan(columns=["c"], filter=text).to_arrow()["c"].to_pylist()
    # As a partition value an empty string is null.
    everything = [None if partitioned and value == "" else value for column in files for value in column]
    expected = [value for value in everything if value is not None and _COMPARE[symbol](value, wanted) != negated]
    key: Callable[[Any], Any] = Decimal if kind == pa.decimal128(5, 2) else (lambda value: value)
    assert sorted(found, key=key) == sorted(expected, key=key)


def seconds_of_columns(uri: str, count: int) -> dict[str, float]:
    """CPU seconds of each way to read a table with `count` columns: the best of three runs."""
    columns = [f"c{number}" for number in range(count)]
    data = pa.table({name: [0.0] for name in columns})
    deltic.write(uri, data)
    deltic.write(uri, data)
    ways: dict[str, Callable[[deltic.Table], Any]] = {
        "files": lambda table: table.files().read_all(),
        "plan": lambda table: table.plan(filter=f"{columns[-1]} = 1.0 OR c1 = 2.0"),
        "plan of columns": lambda table: table.plan(columns=columns[::-1]),
        "scan": lambda table: table.scan().to_arrow(),
        "scan of columns": lambda table: table.scan(columns=columns[::-1], filter="c1 = 0.0").to_arrow(),
    }
    best = {}
    for way, use in ways.items():
        taken = []
        for _ in range(3):
            table = deltic.Table(uri)  # a new handle without cached state
            began = time.process_time()
            use(table)
            taken.append(time.process_time() - began)
        best[way] = min(taken)
    return best


@pytest.mark.slow
def test_the_cost_of_many_columns_is_not_quadratic(tmp_path: Path) -> None:
    few, many = (seconds_of_columns(str(tmp_path / f"{count}"), count) for count in (2_000, 8_000))
    # Four times as many columns: a linear cost grows 4 times, a quadratic one 16 times. Short times are not compared.
    slow = {way: (few[way], many[way]) for way in many if many[way] > 10 * max(few[way], 0.01)}
    assert not slow
