"""`deltic.spark.delete`, `update` and `merge` with SQL that only Spark knows: compared with SQL that deltic knows."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import FEED, IDS, MAPPED, VECTORS
from killed_tasks import dying
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from test_rows import changes, counts, made, tracked
from test_rules import PEOPLE, SOUND, SOUNDS, create, default, field, generated, people, refused, rows

import deltic
import deltic.spark
from deltic import Table
from deltic.spark.dml import evaluated_changes
from deltic.spark.dml import rows as row_changes

SETTINGS = [{}, FEED | IDS, VECTORS | FEED | IDS | MAPPED]
A_OR_B = "mask(part) = 'x'"
"""TRUE in all rows, and deltic has no function `mask`."""
ONE = "length(mask(part))"
FAILED: Any = (PySparkException, deltic.InvalidInputError)


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make every file worth a task; record the number of tasks of each job."""
    monkeypatch.setattr(row_changes, "BYTES_PER_TASK", 1)
    counted: list[int] = []
    plain = evaluated_changes.spread

    def spread(*arguments: Any) -> DataFrame:
        counted.append(len(arguments[1]))
        return plain(*arguments)

    monkeypatch.setattr(evaluated_changes, "spread", spread)
    return counted


def agree(
    tmp_path: Path, properties: dict[str, str], change: Callable[[Table, bool], deltic.Commit], *earlier: str
) -> deltic.Commit:
    """Make a change with SQL that only Spark knows, and with the same in deltic's SQL, and compare what was done."""
    table = made(str(tmp_path / "spark"), properties)
    for where in earlier:
        table.delete(where)
    shutil.copytree(tmp_path / "spark", tmp_path / "known")
    known = Table(str(tmp_path / "known"))
    done, expected = change(table, True), change(known, False)
    assert counts(done) == counts(expected)
    assert tracked(table) == tracked(known)
    assert changes(table) == changes(known)
    assert table.history(1)[0]["operation"] == known.history(1)[0]["operation"]
    assert not table.check(files=True).findings
    return done


@pytest.mark.parametrize("properties", [*SETTINGS, VECTORS], ids=str)
def test_an_update(spark: SparkSession, tmp_path: Path, tasks: list[int], properties: dict[str, str]) -> None:
    def change(table: Table, by_spark: bool) -> deltic.Commit:
        n = f"n * id + {ONE}" if by_spark else "n * id + 1"
        where = f"id % 3 = 0 AND {A_OR_B}" if by_spark else "id % 3 = 0"
        values: dict[str, Any] = {"N": n, "s.x": "s.x - 1", "part": deltic.lit("c")}
        return deltic.spark.update(spark, table, values, where)

    done = agree(tmp_path, properties, change, "id IN (3, 4)")
    assert done.metrics["numUpdatedRows"] == 19
    assert tasks == [6]


@pytest.mark.parametrize("properties", SETTINGS, ids=str)
def test_a_delete(spark: SparkSession, tmp_path: Path, tasks: list[int], properties: dict[str, str]) -> None:
    def change(table: Table, by_spark: bool) -> deltic.Commit:
        where = "id > 40 AND (part = 'a' OR id = 51)"
        return deltic.spark.delete(spark, table, f"{A_OR_B} AND {where}" if by_spark else where)

    done = agree(tmp_path, properties, change, "id IN (42, 43)")
    assert done.metrics["numDeletedRows"] == 9
    # What deltic knows of the condition chooses files: those with ids above 40.
    assert tasks == [2]


def test_conditions_that_no_row_makes_true(spark: SparkSession, tmp_path: Path, tasks: list[int]) -> None:
    table = made(str(tmp_path))
    before = tracked(table)
    for where in (
        "mask('a') = 'b'",
        f"{A_OR_B} AND NULL",
        f"id > 1000 AND {A_OR_B}",
        "mask(CAST(NULL AS STRING)) = 'x'",
    ):
        assert deltic.spark.delete(spark, table, where).metrics["numDeletedRows"] == 0
        assert deltic.spark.update(spark, table, {"n": "0"}, where).metrics["numUpdatedRows"] == 0
    assert tracked(table) == before
    # NULL is not TRUE.
    where = "mask(CASE WHEN id < 5 THEN part END) = 'x'"
    assert deltic.spark.delete(spark, table, where).metrics["numDeletedRows"] == 5
    assert deltic.spark.update(spark, table, {"n": f"{ONE} / 4"}).metrics["numUpdatedRows"] == 55
    assert set(table.scan().to_arrow()["n"].to_pylist()) == {0.25}


@pytest.mark.parametrize("properties", SETTINGS, ids=str)
def test_a_merge(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    ids = [0, 1, 2, 3, 41, 100, 101, 102]
    columns = "id long, part string, s struct<x: long>, n double"
    news = spark.createDataFrame([(n, "a", (-n,), 2.5 + n) for n in ids], columns)

    def change(table: Table, by_spark: bool) -> deltic.Commit:
        also = " AND mask(s.part) = 'x'" if by_spark else ""
        n = "s.n + length(mask(t.part))" if by_spark else "s.n + 1"
        merge = deltic.spark.merge(spark, table, news, "s.id = t.id", "s", "t")
        merge = merge.when_matched_delete(f"t.id = 41{also}").when_matched_update({"t.n": n}, f"t.id > 1{also}")
        merge = merge.when_matched_update_all("s.n < 3")
        merge = merge.when_not_matched_insert({"id": "id + 0", "part": "'b'", "n": n.replace("t.", "s.")}, "id = 100")
        merge = merge.when_not_matched_insert_all("id <> 102")
        merge = merge.when_not_matched_by_source_update({"n": n.replace("s.n", "t.n")}, "t.id > 55")
        return merge.when_not_matched_by_source_delete(f"t.id = 50{also.replace('s.', 't.')}").execute()

    metrics = agree(tmp_path, properties, change).metrics
    assert metrics["numTargetRowsMatchedUpdated"] == 3
    assert metrics["numTargetRowsMatchedDeleted"] == 1
    assert metrics["numTargetRowsInserted"] == 2
    assert metrics["numTargetRowsNotMatchedBySourceUpdated"] == 4
    assert metrics["numTargetRowsNotMatchedBySourceDeleted"] == 1
    assert metrics["numSourceRows"] == 8


def test_a_merge_condition_chooses_files(spark: SparkSession, tmp_path: Path, tasks: list[int]) -> None:
    table = made(str(tmp_path))
    news = spark.createDataFrame([(41, "a"), (43, "b"), (90, "b")], "id long, part string")
    merge = deltic.spark.merge(spark, table, news, "s.id = t.id AND mask(s.part) = 'x' AND t.id > 20", "s", "t")
    done = merge.when_matched_update({"n": "-1"}).when_not_matched_insert({"id": "id", "part": "part"}).execute()
    assert (done.metrics["numTargetRowsUpdated"], done.metrics["numTargetRowsInserted"]) == (2, 1)
    # The files with such ids, one in each partition.
    assert tasks == [2]
    # No equality that deltic knows: all files are read, and every pair of rows is compared.
    merge = deltic.spark.merge(
        spark, table, news, "mask(CAST(s.id AS STRING)) = mask(CAST(t.id * 10 AS STRING))", "s", "t"
    )
    assert merge.when_matched_delete().execute().metrics["numTargetRowsDeleted"] == 9
    merge = deltic.spark.merge(spark, table, news, "mask(s.part) = mask(t.part)", "s", "t").when_matched_update(
        {"n": "0"}
    )
    with refused(table, deltic.InvalidInputError, "matched by several rows of the source"):
        merge.execute()


def test_rules_hold_for_updated_rows(spark: SparkSession, uri: str) -> None:
    checks = SOUNDS | {"small": "id < 100"}
    table = create(uri, [*PEOPLE, SOUND, field("n", "integer")], checks)
    deltic.spark.write(people(spark, (1, "Robert"), (2, "Rupert"), (3, "Andrea")), table)
    with refused(table, FAILED, r"`sounds` .* is violated by row .*: name = 'Al'"):
        deltic.spark.update(spark, table, {"name": "'Al'"}, "id = 2")
    with refused(table, FAILED, r"`sounds` .*: name = NULL"):
        deltic.spark.update(spark, table, {"name": "NULL"})
    with refused(table, FAILED, r"`small` .*: id = 100"):
        deltic.spark.update(spark, table, {"id": "id + 97"})
    with refused(table, FAILED, r"generated column `sound`"):
        deltic.spark.update(spark, table, {"sound": "'Yyyyyy'"}, "id = 2")
    # The generated column is computed of the new values, and a value that is given must be that.
    deltic.spark.update(spark, table, {"name": "replace(name, 'e', 'u')", "n": deltic.lit(7)}, "id < 3")
    deltic.spark.update(spark, table, {"Name": deltic.lit("Maries"), "sound": "mask('Zzzzzz')"}, "id = 3")
    expected = [(1, "Roburt", 7), (2, "Rupurt", 7), (3, "Maries", None)]
    assert [(row["id"], row["name"], row["n"]) for row in rows(table)] == expected
    assert {row["sound"] for row in rows(table)} == {"Xxxxxx"}


def test_only_comparisons_are_evaluated_before_other_parts(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": [1, 2, 3], "name": ["5", "abc", "50"]}))
    table = Table(uri)
    guarded = "length(mask(name)) = 1 AND CAST(name AS INT) = 5 AND 10 / (id - 2) < 0"
    assert deltic.spark.update(spark, table, {"id": "length(mask('a')) + 9"}, guarded).metrics["numUpdatedRows"] == 1
    assert [row["id"] for row in rows(table)] == [2, 3, 10]
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        deltic.spark.delete(spark, table, "CAST(name AS INT) > 5 AND mask(name) IS NOT NULL")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [row["id"] for row in rows(table)] == [2, 10]


def test_a_field_is_set_beside_a_rule_with_its_letters(spark: SparkSession, uri: str) -> None:
    struct = {"type": "struct", "fields": [field("x", "long")]}
    table = create(uri, [*PEOPLE, field("s", struct)], SOUNDS | {"letters": "mask('as') = 'xx'"})
    deltic.spark.write(people(spark, (1, "Robert")), table)
    deltic.spark.update(spark, table, {"s": "named_struct('x', 1L)"})
    deltic.spark.update(spark, table, {"s.x": "2"})
    assert [row["s"] for row in rows(table)] == [{"x": 2}]


def test_rules_hold_for_merged_rows(spark: SparkSession, uri: str) -> None:
    fields = [*PEOPLE, SOUND, default("n", "integer", "length(mask('xyz'))"), generated("twice", "long", "id * 2")]
    table = create(uri, fields, SOUNDS)
    deltic.spark.write(people(spark, (1, "Robert"), (2, "Rupert"), (3, "Andrea")), table)

    def merge(*news: tuple[Any, ...]) -> deltic.Merge[deltic.Commit]:
        return deltic.spark.merge(spark, table, people(spark, *news), "source.id = target.id")

    with refused(table, FAILED, r"`sounds` .* is violated by row .*: name = 'Al'"):
        merge((2, "Al")).when_matched_update({"name": "source.name"}).execute()
    with refused(table, FAILED, r"`sounds` .* is violated by row .*: name = 'Bo'"):
        merge((2, "Al"), (8, "Bo")).when_not_matched_insert_all().execute()
    news = merge((1, "Walter"), (2, "Sabine"), (7, "Martha"), (8, "Gretel"))
    news = news.when_matched_update({"name": "source.name", "n": "DEFAULT"}, "target.id = 1")
    news = news.when_matched_update_all().when_not_matched_insert({"id": "id", "name": "name", "n": "-1"}, "id = 7")
    done = news.when_not_matched_insert_all().when_not_matched_by_source_update({"id": "id + 30"}).execute()
    assert (done.metrics["numTargetRowsUpdated"], done.metrics["numTargetRowsInserted"]) == (3, 2)
    named = [(row["id"], row["name"], row["n"]) for row in rows(table)]
    assert named == [(1, "Walter", 3), (2, "Sabine", 3), (7, "Martha", -1), (8, "Gretel", 3), (33, "Andrea", 3)]
    assert all(row["sound"] == "Xxxxxx" and row["twice"] == 2 * row["id"] for row in rows(table))
    # Rows are deleted as by a table without rules.
    assert merge((1, "?")).when_matched_delete().execute().metrics["numTargetRowsDeleted"] == 1


def test_rules_of_odd_columns(spark: SparkSession, uri: str) -> None:
    def mapped(at: int) -> dict[str, Any]:
        return {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"}

    odd, inner = "a b.`c", {"type": "struct", "fields": [field("x", "string", **mapped(5))]}
    kinds = {"id": "long", odd: "string", "s": inner, "p": "string"}
    fields = [field(name, kind, **mapped(at)) for at, (name, kind) in enumerate(kinds.items(), 1)]
    checks = {"odd": "mask(`a b.``c`) = 'xx'", "inside": "mask(s.x) = 'x'", "p": "mask(P) IS NULL OR P = 'q'"}
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    table = create(uri, fields, checks, ["p"], properties)
    frame = spark.sql("SELECT 1 AS id, 'ab' AS `a b.``c`, named_struct('x', 'x') AS s, 'q' AS p")
    deltic.spark.write(frame, table)
    with refused(table, FAILED, r"`odd` .* 'abc'"):
        deltic.spark.update(spark, table, {f"`{odd.replace('`', '``')}`": "'abc'"})
    # An empty string is no partition value.
    deltic.spark.update(spark, table, {"p": "''", odd: "concat(mask(p), 'y')"})
    assert rows(table) == [{"id": 1, odd: "xy", "s": {"x": "x"}, "p": None}]
    with refused(table, deltic.DelticError, "set the whole column `s`"):
        deltic.spark.update(spark, table, {"s.x": "'y'"})
    deltic.spark.update(spark, table, {"s": "named_struct('x', 'z')"})
    assert rows(table)[0]["s"] == {"x": "z"}


def test_the_spelling_of_callers(spark: SparkSession, uri: str) -> None:
    data = pa.table({"id": [1, 2], "name": ["a\\nb", "it's"], "ID number": ["x", "y"]})
    deltic.write(uri, data, properties=MAPPED)
    table = Table(uri)
    where = """mask(name) = 'x\\xx' AND "ID number" = 'x' AND name = 'a\\nb'"""
    deltic.spark.update(spark, table, {"ID number": """concat("ID number", mask('A"b\\'), 'it''s', `name`)"""}, where)
    assert rows(table)[0]["ID number"] == "xX\"x\\it'sa\\nb"
    assert (
        deltic.spark.delete(spark, table, "name = 'it''s' AND mask('it''s') = 'xx''x'").metrics["numDeletedRows"] == 1
    )


def test_errors_of_values(spark: SparkSession, tmp_path: Path) -> None:
    table = made(str(tmp_path))
    with refused(table, Exception, "DIVIDE_BY_ZERO|division by zero"):
        deltic.spark.update(spark, table, {"n": f"{ONE} / (id - 7)"})
    # Only in rows that change.
    deltic.spark.update(spark, table, {"n": f"{ONE} / (id - 7)"}, f"id <> 7 AND {A_OR_B}")
    news = spark.createDataFrame([(7,), (70,), (99,)], "id long")
    merge = deltic.spark.merge(spark, table, news, "s.id = t.id", "s", "t")
    merge = merge.when_matched_update({"n": f"{ONE} / (s.id - 99)"}, f"{ONE} / (s.id - 70) < 0")
    merge.when_not_matched_insert(
        {"id": "id", "n": "length(mask('a')) / (id - 7)"}, "length(mask('a')) / (id - 7) < 0.015"
    ).execute()
    found = {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}
    assert (found[7], found[99], found[8]) == (1 / -92, 1 / 92, 1.0)
    for value in (f"CAST({ONE} * 3000000000 AS LONG) * 4000000000", f"{ONE} * 1e300"):
        with refused(table, Exception, "overflow|OVERFLOW|out of range|cannot be cast|does not fit"):
            deltic.spark.update(spark, table, {"id": value})


def test_each_row_has_one_value(spark: SparkSession, uri: str) -> None:
    deltic.write(uri, pa.table({"id": range(50), "u": [""] * 50}), properties=FEED)
    table = Table(uri)
    deltic.spark.update(spark, table, {"u": "concat(uuid(), mask('a'))"})
    values = table.scan().to_arrow()["u"].to_pylist()
    assert len(set(values)) == 50
    feed = table.changes(start=1).to_arrow().to_pylist()
    assert sorted(row["u"] for row in feed if row["_change_type"] == "update_postimage") == sorted(values)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("no_such(part) = 'x'", "no function no_such.*Spark does not evaluate .*UNRESOLVED_ROUTINE"),
        ("nope = mask(part)", "no column `?nope"),
        ("mask(part) = 'x' AND rand() < 2", "not always give the same value"),
        ("mask(part) IN (SELECT 'x')", "`SELECT`"),
        ("max(mask(part)) = 'x'", "does not evaluate"),
        ("mask(part)", "not a condition but a value of type string"),
        ("mask(struct(*).part) = 'x'", r"`\(\*\)`"),
        ("mask(input_file_name()) = ''", "input_file_name"),
        ("row_number() OVER (ORDER BY id) < mask(part)", "OVER"),
        ("mask('${env:HOME}') = part", r"`\$\{`"),
        ("mask(part) = 'x' OR EXISTS(TABLE text.`/nowhere`)", "subqueries"),
        ("window(timestamp_seconds(id), '2 hours', '1 hour').start < mask(part)", "one value for each row"),
        ("`reflect`('java.lang.System', 'lineSeparator') > mask(part)", "`reflect`"),
        ("system.builtin.`java_method`('java.lang.System', 'lineSeparator') > mask(part)", "`java_method`"),
    ],
)
def test_what_spark_does_not_evaluate(spark: SparkSession, uri: str, sql: str, message: str) -> None:
    table = made(uri)
    with refused(table, deltic.DelticError, message):
        deltic.spark.delete(spark, table, sql)
    with refused(table, deltic.DelticError, message):
        deltic.spark.update(spark, table, {"n": "0"}, sql)
    news = spark.createDataFrame([(7,)], "key long")
    with refused(table, deltic.DelticError, message):
        deltic.spark.merge(spark, table, news, "key = id").when_matched_delete(sql).execute()


def test_other_refusals(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    struct = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    schema = pa.schema([("part", pa.string()), ("arr", pa.list_(pa.int32())), ("st", struct)])
    deltic.write(uri + "_typed", pa.table({"part": ["a"], "arr": [[1]], "st": [{"x": 1, "y": 2}]}, schema))
    typed = Table(uri + "_typed")
    with refused(table, deltic.InvalidInputError, "cannot set"):
        deltic.spark.update(spark, table, {"s": "mask(part)"})
    with refused(table, deltic.InvalidInputError, "twice"):
        deltic.spark.update(spark, table, {"n": ONE, "N": ONE})
    news = spark.createDataFrame([(7, "x")], "key long, more string")
    merge = deltic.spark.merge(spark, table, news, "key = id AND mask(more) = 'x'")
    with refused(table, deltic.DelticError, "with_schema_evolution"):
        merge.when_matched_update({"n": "1"}).with_schema_evolution().execute()
    merge = deltic.spark.merge(spark, table, news, "key = id AND mask(more) = 'x'")
    with refused(table, deltic.DelticError, "more"):
        merge.when_not_matched_by_source_update({"n": f"{ONE} + length(more)"}).execute()
    # Rows that match later would be neither updated nor inserted.
    merge = deltic.spark.merge(spark, table, news, "key = id AND mask(more) < CAST(current_timestamp() AS STRING)")
    with refused(table, deltic.DelticError, "`current_timestamp` is another time"):
        merge.when_matched_delete().when_not_matched_insert({"id": "key"}).execute()
    # Spark's own conversion would be by position.
    for column, value in {"arr": "array()", "st": "named_struct('y', NULL, 'x', 5)"}.items():
        with refused(typed, deltic.DelticError, f"column `{column}` .*has no type: CAST it"):
            deltic.spark.update(spark, typed, {column: value}, "mask(part) = 'x'")
    table.set_properties({"delta.appendOnly": "true"})
    with refused(table, deltic.InvalidInputError, "append"):
        deltic.spark.delete(spark, table, A_OR_B)


def test_times_mean_what_they_mean_in_the_session(spark: SparkSession, uri: str) -> None:
    moments = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (6, 9)]
    table = deltic.Table(uri)
    deltic.write(table, pa.table({"id": [0, 1], "ts": pa.array(moments, pa.timestamp("us", "UTC")), "day": ["", ""]}))
    # Midnight in Los Angeles is 8:00 UTC.
    deltic.spark.update(spark, table, {"day": "date_format(ts, 'yyyy-MM-dd') || mask('a')"})
    assert [row["day"] for row in rows(table)] == ["2023-12-31x", "2024-01-01x"]
    where = "ts < TIMESTAMP '2024-01-01 00:00:00' AND mask(day) IS NOT NULL"
    assert deltic.spark.delete(spark, table, where).metrics["numDeletedRows"] == 1
    with refused(table, deltic.InvalidInputError, "time zone"):
        deltic.spark.update(spark, table, {"ts": "mask(day)"})


def test_the_class_of_delta_spark(spark: SparkSession, uri: str) -> None:
    made(uri)
    table = deltic.spark.DeltaTable.forPath(spark, uri).alias("t")
    assert table.delete("t.id < 10 AND mask(t.part) = 'x'").first()[0] == 10
    assert table.update("id = 20", {"t.n": "length(mask(t.part)) + 1"}).first()[0] == 1
    news = spark.createDataFrame([(20,), (99,)], "id long").alias("s")
    merge = table.merge(news, "t.id = s.id").whenMatchedUpdate(set={"t.n": "t.n + length(mask(t.part))"})
    row = merge.whenNotMatchedInsert(values={"t.id": "s.id + length(mask('a'))"}).execute().first()
    assert (row["num_updated_rows"], row["num_inserted_rows"]) == (1, 1)
    found = {row.id: row.n for row in table.toDF().collect()}
    assert (found[20], found[100], len(found)) == (3.0, None, 51)


def test_variants_and_nested_values(spark: SparkSession, uri: str) -> None:
    frame = spark.sql("SELECT id, parse_json(concat('{\"n\": ', id, '}')) AS v, array(id) AS a FROM range(4)")
    table = Table(uri)
    deltic.spark.write(frame, table)
    where = "variant_get(v, '$.n', 'int') > 1"
    values = {"v": "parse_json('[1]')", "a": "transform(a, x -> x + length(mask('a')))"}
    assert deltic.spark.update(spark, table, values, where).metrics["numUpdatedRows"] == 2
    found = deltic.spark.read(spark, table).selectExpr("id", "to_json(v) AS v", "a").orderBy("id").collect()
    expected = [(0, '{"n":0}', [0]), (1, '{"n":1}', [1]), (2, "[1]", [3]), (3, "[1]", [4])]
    assert [tuple(row) for row in found] == expected


@pytest.mark.parametrize("job", ["task_changer", "part_changer", "inserter"])
def test_killed_tasks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    table = made(str(tmp_path / "table"), VECTORS)
    (tmp_path / "deaths").mkdir()
    news = spark.createDataFrame([(7,), (99,)], "id long")
    plain = getattr(evaluated_changes, job)

    def change() -> deltic.Commit:
        if job == "task_changer":
            return deltic.spark.update(spark, table, {"n": f"n + {ONE}"}, A_OR_B)
        merge = deltic.spark.merge(spark, table, news, "s.id = t.id AND mask(part) = 'x'", "s", "t")
        return merge.when_matched_update({"n": "n + 1"}).when_not_matched_insert({"id": "id"}).execute()

    with monkeypatch.context() as patched:
        patched.setattr(evaluated_changes, job, dying(plain, tmp_path / "deaths", 1))
        metrics = change().metrics
        assert list((tmp_path / "deaths").iterdir())
    found = {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}
    if job == "task_changer":
        assert (metrics["numUpdatedRows"], set(found.values())) == (60, {2.5})
    else:
        assert (len(found), found[7], found[8], found[99]) == (61, 2.5, 1.5, None)
    before = table.snapshot().version, set(Path(table.uri).rglob("*.parquet"))
    monkeypatch.setattr(evaluated_changes, job, dying(plain, tmp_path / "deaths", 1000))
    if job == "inserter":
        news = spark.createDataFrame([(7,), (98,)], "id long")
    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        change()
    assert (table.snapshot().version, set(Path(table.uri).rglob("*.parquet"))) == before


def test_functions_of_the_session(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    spark.udf.register("twice", lambda n: 2.0 * n, "double")
    try:
        assert deltic.spark.update(spark, table, {"n": "twice(n) + id"}, "twice(id) < 7").metrics["numUpdatedRows"] == 4
    finally:
        spark.sql("DROP TEMPORARY FUNCTION twice")
    found = {row["id"]: row["n"] for row in table.scan().to_arrow().to_pylist()}
    assert [found[id] for id in range(6)] == [3.0, 4.0, 5.0, 6.0, 1.5, 1.5]


def test_another_writer(spark: SparkSession, uri: str) -> None:
    table = made(uri)
    changed = row_changes.on_executors(spark, table)

    def update_a_deleted_row() -> None:
        with changed.transaction() as transaction:
            transaction.update({"n": f"n + {ONE}"}, f"id = 7 AND {A_OR_B}")
            table.delete("id = 7")

    with pytest.raises(deltic.CommitConflictError):
        update_a_deleted_row()
    with changed.transaction() as transaction:
        transaction.update({"n": f"n + {ONE}"}, f"id < 20 AND {A_OR_B}")
        table.update({"n": "0"}, "id > 40")
    found = [row["n"] for row in rows(table)]
    assert found == [2.5] * 19 + [1.5] * 21 + [0.0] * 19


CONNECT = """
import sys
from pyspark.sql import SparkSession
import deltic, deltic.spark
from test_rows import made
from test_rules import refused

spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
table = made(sys.argv[1])
with refused(table, deltic.UnsupportedFeatureError, "no function mask.*Spark Connect"):
    deltic.spark.delete(spark, table, "mask(part) = 'x'")
spark.stop()
"""


def test_spark_connect(in_connect: Callable[[str, str], None], uri: str) -> None:
    in_connect(CONNECT, uri)
