"""Generated columns, defaults and constraints in Python; a refused write leaves no files."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltic

FIELDS = [
    pa.field("id", pa.int64()),
    pa.field("day", pa.date32(), metadata={"CURRENT_DEFAULT": "DATE '2024-02-29'"}),
    pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "id * 2"}),
    pa.field("year", pa.int32(), metadata={"delta.generationExpression": "year(day)"}),
]


@pytest.fixture
def table(uri: str) -> deltic.Table:
    properties = {"delta.constraints.small": "id < 100"}
    deltic.create(uri, pa.schema(FIELDS), partition_by=["year"], properties=properties)
    return deltic.Table(uri)


def data_files(table: deltic.Table) -> list[Path]:
    return [path for path in Path(table.uri).rglob("*.parquet") if "_delta_log" not in path.parts]


def test_the_protocol_has_what_the_table_defines(table: deltic.Table) -> None:
    features = set(table.snapshot().protocol["writerFeatures"])
    assert {"allowColumnDefaults", "checkConstraints", "generatedColumns"} <= features


def test_missing_columns_are_computed_and_given_ones_compared(table: deltic.Table) -> None:
    deltic.write(table, pa.table({"id": pa.array([1, 2], pa.int16())}))
    deltic.write(table, pa.table({"id": [3], "day": [date(1999, 1, 1)], "twice": [6], "year": [1999]}))
    expected = [(1, 2, 2024), (2, 4, 2024), (3, 6, 1999)]
    found = table.scan().to_arrow().sort_by("id")
    assert [(row["id"], row["twice"], row["year"]) for row in found.to_pylist()] == expected
    assert table.scan(filter="year = 1999").to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(deltic.InvalidInputError, match=r"row 1 .*`twice` \(id \* 2\) gives: twice = 5, id = 2"):
        deltic.write(table, pa.table({"id": [1, 2], "twice": [2, 5]}))


@pytest.mark.slow
@pytest.mark.parametrize("as_transaction", [False, True])
def test_a_violation_late_in_a_stream_leaves_no_files(table: deltic.Table, as_transaction: bool) -> None:
    schema = pa.schema([("id", pa.int64())])
    batches = [pa.record_batch({"id": pa.array([n % 100] * 70_000)}, schema=schema) for n in range(5)]
    batches.append(pa.record_batch({"id": [1, None]}, schema=schema))
    message = (
        r"CHECK constraint `small` \(id < 100\) is violated by row 350001 \(the first is 0\) of the data: id = NULL"
    )
    stream = pa.RecordBatchReader.from_batches(schema, batches)

    def write() -> None:
        if not as_transaction:
            deltic.write(table, stream)
            return
        with table.transaction() as tx:
            tx.append(stream)

    with pytest.raises(deltic.InvalidInputError, match=message) as caught:
        write()
    assert caught.value.table is not None
    assert (table.snapshot().version, data_files(table)) == (0, [])


def test_a_transaction_computes_generated_columns(table: deltic.Table) -> None:
    with table.transaction() as tx:
        tx.append(pa.table({"id": [7]}))
    assert table.scan().to_arrow().to_pylist() == [{"id": 7, "day": date(2024, 2, 29), "twice": 14, "year": 2024}]


@pytest.mark.parametrize(
    ("metadata", "properties", "error", "message"),
    [
        ({}, {"delta.constraints.c": "b > 0"}, deltic.InvalidInputError, "`c` .*no column `b`"),
        ({}, {"delta.constraints.c": "a + 1"}, deltic.InvalidInputError, "`c` .*is not a condition"),
        ({}, {"delta.constraints.c": "frob(a)"}, deltic.UnsupportedFeatureError, "`c` .*no function frob"),
        ({"CURRENT_DEFAULT": "'x'"}, {}, deltic.InvalidInputError, "default of the column `a`"),
        ({"delta.generationExpression": "rand()"}, {}, deltic.InvalidInputError, "not always give the same"),
        ({"delta.generationExpression": "a + 1"}, {}, deltic.InvalidInputError, "depends on `a`"),
    ],
)
def test_invalid_rules_are_refused(
    uri: str, metadata: dict[str, str], properties: dict[str, str], error: Any, message: str
) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), metadata=metadata), pa.field("z", pa.int64())])
    with pytest.raises(error, match=message):
        deltic.create(uri, schema, properties=properties)
    assert not deltic.Table(uri).exists()


def test_constraints_are_added_where_all_rows_satisfy_them(table: deltic.Table) -> None:
    deltic.write(table, pa.table({"id": [1, 1, 20]}))
    for expression, message in {
        "id > 1": r"`c` \(id > 1\) is violated by 2 rows of the table",
        "nullif(id, 20) > 0": "is violated by 1 row of the table",
        "id +": r"`c` \(id \+\): expression, character 5",
        "id + 1": "is not a condition but a value of type long",
        "nope > 1": "there is no column `nope`",
        "id < 0 -- or so": "comment",
        "id < 0) OR (TRUE": "character",
    }.items():
        with pytest.raises(deltic.InvalidInputError, match=message):
            table.add_constraint("c", expression)
    with pytest.raises(deltic.UnsupportedFeatureError, match=r"`c` \(frob\(id\) = 'a'\): there is no function frob"):
        table.add_constraint("c", "frob(id) = 'a'")
    with pytest.raises(deltic.InvalidInputError, match="there is a constraint `small` already"):
        table.add_constraint("SMALL", "id < 1000")
    version = table.add_constraint("Given", "id IS NULL OR id > 0").version
    assert table.history(1)[0]["operationParameters"] == {"name": "Given", "expr": "id IS NULL OR id > 0"}
    with pytest.raises(deltic.InvalidInputError, match="CHECK constraint `given`"):
        deltic.write(table, pa.table({"id": [-1]}))
    assert table.snapshot().version == version
    table.drop_constraint("given")
    deltic.write(table, pa.table({"id": [-1]}))


def test_a_violated_constraint_leaves_its_transaction_unchanged(table: deltic.Table) -> None:
    deltic.write(table, pa.table({"id": [1]}))
    with table.transaction() as tx:
        with pytest.raises(deltic.InvalidInputError):
            tx.add_constraint("c", "id > 1")
        tx.add_constraint("d", "id > 0")
    assert set(table.detail().properties) == {"delta.constraints.small", "delta.constraints.d"}


def test_concurrently_added_rows_conflict_with_a_new_constraint(table: deltic.Table) -> None:
    def add() -> None:
        with table.transaction() as tx:
            tx.add_constraint("c", "id > 0")
            deltic.write(table.uri, pa.table({"id": [-1]}))

    with pytest.raises(deltic.CommitConflictError):
        add()
    assert "delta.constraints.c" not in table.detail().properties


PARTED = [
    pa.field("id", pa.int64()),
    pa.field("known", pa.bool_(), metadata={"delta.generationExpression": "p IS NOT NULL"}),
    pa.field("length", pa.int32(), metadata={"delta.generationExpression": "length(p)"}),
]


def parted(uri: str, kind: pa.DataType, condition: str, p: dict[str, str] | None = None) -> deltic.Table:
    """A table with a partition column `p`, a constraint on it, and columns generated from it."""
    schema = pa.schema([*PARTED, pa.field("p", kind, metadata=p)])
    deltic.create(uri, schema, partition_by=["p"], properties={"delta.constraints.filled": condition})
    return deltic.Table(uri)


EMPTY = pytest.mark.parametrize(("kind", "empty", "sql"), [(pa.string(), "", "''"), (pa.binary(), b"", "X''")])


@EMPTY
def test_a_constraint_sees_an_empty_partition_value_as_null(uri: str, kind: pa.DataType, empty: Any, sql: str) -> None:
    table = parted(uri, kind, "p IS NOT NULL")
    full = b"a" if empty == b"" else "a"
    deltic.write(table, pa.table({"id": [1], "p": [full]}))
    before = data_files(table)
    rows = pa.table({"id": [1, 2], "p": pa.array([empty] * 2, kind)})
    new = rows.slice(1)
    on = "source.id = target.id"
    for change in (
        lambda: deltic.write(table, new),
        lambda: deltic.write(table, new, mode="overwrite"),
        lambda: table.update({"p": sql}),
        lambda: table.update({"p": deltic.lit(empty)}),
        lambda: table.merge(rows, on).when_matched_update({"p": "source.p"}).execute(),
        lambda: table.merge(rows, on).when_not_matched_insert({"id": "source.id", "p": "source.p"}).execute(),
    ):
        with pytest.raises(deltic.InvalidInputError, match=r"`filled` \(p IS NOT NULL\) is violated .* p = NULL"):
            change()
        assert (table.snapshot().version, data_files(table)) == (1, before)
    assert table.scan(columns=["id", "p"]).to_arrow().to_pylist() == [{"id": 1, "p": full}]


@EMPTY
def test_an_empty_partition_value_satisfies_is_null(uri: str, kind: pa.DataType, empty: Any, sql: str) -> None:
    table = parted(uri, kind, "p IS NULL")
    deltic.write(table, pa.table({"id": [1], "p": pa.array([empty], kind)}))
    assert table.update({"p": sql}).metrics["numUpdatedRows"] == 1
    merge = table.merge(pa.table({"id": [2], "p": pa.array([empty], kind)}), "source.id = target.id")
    merge.when_not_matched_insert({"id": "source.id", "p": "source.p"}).execute()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": id, "known": False, "length": None, "p": None} for id in (1, 2)
    ]


@EMPTY
def test_generated_columns_are_computed_from_stored_partition_values(
    uri: str, kind: pa.DataType, empty: Any, sql: str
) -> None:
    table = parted(uri, kind, "true")
    rows = pa.table({"id": [1], "p": pa.array([empty], kind)})
    nothing = pa.array([None], pa.int32())
    computed = {"id": 1, "known": False, "length": None, "p": None}
    deltic.write(table, rows)
    assert table.scan().to_arrow().to_pylist() == [computed]
    # Explicit values are compared with the expression's result for the stored partition value.
    deltic.write(table, rows.append_column("known", [[False]]).append_column("length", nothing))
    for name, wrong in (("known", pa.array([True])), ("length", pa.array([0], pa.int32()))):
        with pytest.raises(deltic.InvalidInputError, match=f"`{name}`"):
            deltic.write(table, rows.append_column(name, wrong))
    assert table.scan().to_arrow().to_pylist() == [computed] * 2


def test_a_generated_empty_partition_value_is_null(uri: str) -> None:
    fields = [("s", pa.string()), pa.field("p", pa.string(), metadata={"delta.generationExpression": "trim(s)"})]
    deltic.create(uri, pa.schema(fields), partition_by=["p"], properties={"delta.constraints.filled": "p IS NOT NULL"})
    with pytest.raises(deltic.InvalidInputError, match=r"`filled` .* p = NULL"):
        deltic.write(uri, pa.table({"s": [" a ", " "]}))
    deltic.write(uri, pa.table({"s": [" a "]}))
    table, source = deltic.Table(uri), pa.table({"s": [" a "], "new": [" "]})
    merge = table.merge(source, "source.s = target.s").when_matched_update({"s": "source.new"})
    for change in (lambda: table.update({"s": "' '"}), merge.execute):
        with pytest.raises(deltic.InvalidInputError, match=r"`filled` .* p = NULL"):
            change()
    assert table.scan().to_arrow().to_pylist() == [{"s": " a ", "p": "a"}]


def test_an_update_refuses_null_in_a_required_generated_column(uri: str) -> None:
    twice = deltic.field("twice", "long", nullable=False, generated="id * 2")
    deltic.create(uri, pa.schema([pa.field("id", pa.int64()), twice]))
    deltic.write(uri, pa.table({"id": [1, 2]}))
    with pytest.raises(deltic.InvalidInputError, match=r"row 1: the column twice is not nullable"):
        deltic.Table(uri).update({"id": "NULL"}, "id = 2")
    assert deltic.Table(uri).snapshot().version == 1


def test_existing_rows_are_checked_with_the_stored_constraint(uri: str) -> None:
    deltic.write(uri, pa.table({"path": ["a\\b"]}))
    table = deltic.Table(uri)
    with pytest.raises(deltic.InvalidInputError, match="violated by 1 row") as caught:
        table.add_constraint("other", r"path <> 'a\\b'")
    assert table.scan(filter=r"(path <> 'a\b') IS NOT TRUE").count() == 1
    assert r"path <> 'a\b'" in str(caught.value)
    table.add_constraint("quoted", r"path <> 'it\'s'")
    table.add_constraint("named", 'path <> "n/a"')
    table.add_constraint("escaped", r"path = 'a\\b'")
    table.update({"path": "path"})
    for wrong in ("it's", "n/a", "a\\\\b"):
        with pytest.raises(deltic.InvalidInputError, match=r"quoted|named|escaped"):
            deltic.write(table, pa.table({"path": [wrong]}))


def test_a_constraint_on_columns_that_its_transaction_has_changed_is_refused(uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2], "n": [3, 4]}), properties={"delta.columnMapping.mode": "name"})
    table = deltic.Table(uri)
    with table.transaction() as tx:
        tx.add_constraint("small", "n < 9")
        tx.rename_column("id", "key")
        tx.add_columns(pa.field("id", pa.int64()))
        with pytest.raises(deltic.InvalidInputError, match="has changed the columns already"):
            tx.add_constraint("positive", "id > 0")
    assert [name for name in table.snapshot().metadata["configuration"] if "constraints" in name] == [
        "delta.constraints.small"
    ]


@pytest.mark.slow
def test_replace_where_sees_columns_generated_from_stored_partition_values(uri: str) -> None:
    table = parted(uri, pa.string(), "true")
    deltic.write(table, pa.table({"id": [1, 2], "p": ["a", None]}))
    rows = pa.table({"id": [3], "p": [""]})
    for where in ("known", "length = 0", "p = ''"):
        with pytest.raises(deltic.InvalidInputError, match=r"row 0 .* is not among the rows that replace_where"):
            deltic.write(table, rows, mode="overwrite", replace_where=where)
    for where in ("NOT known", "length IS NULL", "p IS NULL"):
        deltic.write(table, rows, mode="overwrite", replace_where=where)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write", "update", "merge"])
def test_a_partition_value_of_negative_zero_keeps_its_sign(uri: str, how: str) -> None:
    computed = pa.field("text", pa.string(), metadata={"delta.generationExpression": "CAST(p AS STRING)"})
    deltic.create(uri, pa.schema([("id", pa.int64()), ("p", pa.float64()), computed]), partition_by=["p"])
    table = deltic.Table(uri)
    if how == "write":
        deltic.write(uri, pa.table({"id": [1], "p": [-0.0]}))
    elif how == "update":
        deltic.write(uri, pa.table({"id": [1], "p": [1.0]}))
        table.update({"p": "-0.0D"})
    else:
        merge = table.merge(pa.table({"id": [1], "p": [-0.0]}), "source.id = target.id")
        merge.when_not_matched_insert({"id": "source.id", "p": "source.p"}).execute()
    # Compared as strings, since -0.0 equals 0.0.
    assert [(str(row["p"]), row["text"]) for row in table.scan().to_arrow().to_pylist()] == [("-0.0", "-0.0")]
    deltic.write(uri, pa.table({"id": [2, 3], "p": [0.0, -0.0]}))
    assert table.scan(filter="p = 0.0").count() == 3
    deltic.write(uri, pa.table({"id": [4], "p": [0.0]}), mode="overwrite", partition_overwrite="dynamic")
    assert [(row["id"], str(row["p"])) for row in table.scan().to_arrow().to_pylist()] == [(4, "0.0")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["timestamp_seconds({})", "timestamp_millis({})", "from_unixtime({})", "hex({})", "bin({})"]
)
@pytest.mark.parametrize("number", ["1.5D", "CAST(1.5 AS decimal(4,3))"])
def test_functions_of_whole_numbers_drop_no_fraction(uri: str, call: str, number: str) -> None:
    deltic.write(uri, pa.table({"id": [1]}))
    with pytest.raises(deltic.InvalidInputError, match="whole numbers"):
        deltic.Table(uri).add_constraint("c", call.format(number) + " IS NOT NULL")
    assert deltic.Table(uri).snapshot().version == 0
