"""Rules of a table that deltic does not know: Spark evaluates them for the rows of `deltic.spark.write`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltic
import deltic.spark

FEATURES = [
    "allowColumnDefaults", "appendOnly", "checkConstraints", "columnMapping", "generatedColumns", "identityColumns",
    "invariants",
]  # fmt: skip


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def generated(name: str, kind: str, sql: str) -> dict[str, Any]:
    return field(name, kind, **{"delta.generationExpression": sql})


def default(name: str, kind: str, sql: str) -> dict[str, Any]:
    return field(name, kind, CURRENT_DEFAULT=sql)


def create(
    uri: str,
    fields: list[dict[str, Any]],
    checks: dict[str, str] | None = None,
    partition_by: list[str] | None = None,
    properties: dict[str, str] | None = None,
) -> deltic.Table:
    """Create a table with rules that deltic does not know, as another writer would."""
    configuration = {f"delta.constraints.{name}": sql for name, sql in (checks or {}).items()} | (properties or {})
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": partition_by or [],
        "configuration": configuration,
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": FEATURES}
    log = Path(uri) / "_delta_log"
    log.mkdir(parents=True)
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(lines) + "\n")
    return deltic.Table(uri)


def rows(table: deltic.Table, order: str = "id") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by(order).to_pylist()
    return found


@contextmanager
def refused(table: deltic.Table, error: type[Exception], message: str) -> Iterator[None]:
    """Check that a write is refused with this message, commits nothing and leaves no files."""

    def files() -> set[Path]:
        return {path for path in Path(table.uri).rglob("*") if path.is_file()}

    before = files()
    with pytest.raises(error, match=message):
        yield
    assert files() == before


def people(spark: SparkSession, *given: tuple[Any, ...], schema: str = "id long, name string") -> DataFrame:
    return spark.createDataFrame(list(given), schema)


PEOPLE = [field("id", "long"), field("name", "string")]
SOUND = generated("sound", "string", "mask(name)")
SOUNDS = {"sounds": "mask(name) = 'Xxxxxx'"}


def test_a_condition_that_only_spark_knows(spark: SparkSession, uri: str) -> None:
    table = create(uri, PEOPLE, SOUNDS)
    commit = deltic.spark.write(people(spark, (1, "Robert"), (2, "Rupert")), table)
    assert commit.num_added_files >= 1
    assert [(row["id"], row["name"]) for row in rows(table)] == [(1, "Robert"), (2, "Rupert")]
    message = r"CHECK constraint `sounds` \(mask\(name\) = 'Xxxxxx'\) is violated by row 0 .*: name = 'Rubin'"
    with refused(table, PySparkException, message):
        deltic.spark.write(people(spark, (3, "Robert"), (4, "Rubin")).coalesce(1).orderBy(F.desc("id")), table)
    with refused(table, PySparkException, r"`sounds` .* is violated by row 1 .*: name = NULL"):
        deltic.spark.write(people(spark, (3, "Robert"), (4, None)).coalesce(1), table)
    # The columns may come in any order and case, and be left out.
    deltic.spark.write(people(spark, ("Robert", 5), schema="NAME string, ID long"), table)
    with refused(table, PySparkException, "name = NULL"):
        deltic.spark.write(spark.range(1), table)
    assert [row["id"] for row in rows(table)] == [1, 2, 5]
    assert [column.name for column in table.snapshot().schema] == ["id", "name"]


def test_writes_without_the_rows_of_spark_are_refused(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    table = create(uri, PEOPLE, SOUNDS)
    frame = people(spark, (1, "Robert"))
    advice = r"no function mask.* deltic\.spark\.write"
    with refused(table, deltic.UnsupportedFeatureError, advice):
        deltic.write(table, frame.toArrow())
    deltic.spark.register(spark)
    with refused(table, PySparkException, advice):
        frame.write.format("deltic").mode("append").save(uri)
    with refused(table, deltic.UnsupportedFeatureError, "engine='arrow'"):
        deltic.spark.write(frame, table, engine="native")
    intervals = create(str(tmp_path / "intervals"), [field("ts", "timestamp")], {"late": "ts < ts + INTERVAL 1 DAY"})
    with refused(intervals, deltic.DelticError, r"(?s)`late` .*deltic\.spark\.write"):
        deltic.write(intervals, spark.sql("SELECT now() AS ts").toArrow())
    deltic.spark.write(frame, table)
    with refused(table, deltic.UnsupportedFeatureError, advice):
        table.update({"name": "'Rubin'"})
    with refused(table, deltic.UnsupportedFeatureError, advice):
        table.merge(frame.toArrow(), "source.id = target.id").when_matched_update_all().execute()
    deltic.spark.delete(spark, table, "id = 1")
    assert rows(table) == []


def test_an_installed_format(spark: SparkSession, uri: str) -> None:
    table = create(uri, PEOPLE, SOUNDS)
    deltic.spark.install(spark)
    try:
        people(spark, (1, "Robert")).write.format("deltic").mode("append").save(uri)
        with refused(table, PySparkException, "`sounds`"):
            people(spark, (1, "Rubin")).write.format("deltic").mode("append").save(uri)
    finally:
        deltic.spark.uninstall(spark)
    assert [row["name"] for row in rows(table)] == ["Robert"]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("frob(name) = 1", deltic.UnsupportedFeatureError, "`c` .*no function frob.* .*Spark does not .*`frob`"),
        ("mask(nobody) = 'Xxxxxx'", deltic.DelticError, "`nobody`"),
        ("mask(name)", deltic.DelticError, "not a condition but a value of type string"),
        ("mask(name) = ", deltic.InvalidInputError, "PARSE_SYNTAX_ERROR"),
        ("explode(array(mask(name) = 'Xxxxxx', true))", deltic.DelticError, "GENERATOR"),
        ("mask(max(name)) = 'Xxxxxx'", deltic.DelticError, "Spark does not evaluate it either"),
        ("row_number() OVER (ORDER BY id) < 5", deltic.DelticError, r"SQL with `OVER \(`"),
        ("mask(name) IN (SELECT 'Xxxxxx')", deltic.DelticError, "SQL with `SELECT`"),
        ("mask(name) = (VALUES ('Xxxxxx'))", deltic.DelticError, "SQL with subqueries"),
        ("reflect('java.lang.System', 'lineSeparator') > ''", deltic.DelticError, "SQL with `reflect`"),
        ("IDENTIFIER('refl' || 'ect')('java.lang.System', 'exit') > ''", deltic.DelticError, "SQL with `IDENTIFIER"),
        ("mask(name) = 'Xxxxxx' OR rand() < 2", deltic.DelticError, "not always give the same value"),
        ("mask(name) = (TABLE people)", deltic.DelticError, "Spark does not evaluate it either"),
        ("mask(name) = 'Xxxxxx' AND hash(*) = 1", deltic.DelticError, r"SQL with `\(\*\)`"),
        # Spark would put variables of the driver into strings, and look for the file.
        ("mask('${env:HOME}') IS NOT NULL", deltic.DelticError, r"SQL with `\$\{`"),
        ("mask(name) = 'Xxxxxx' OR EXISTS(TABLE text.`/nowhere`)", deltic.DelticError, "SQL with subqueries"),
        ("mask(name) = 'Xxxxxx' OR (FROM text.`/nowhere`) IS NULL", deltic.DelticError, "SQL with subqueries"),
        # A row is in two windows.
        (
            "window(timestamp_seconds(id), '2 hours', '1 hour').start IS NOT NULL",
            deltic.DelticError,
            "one value for each row",
        ),
    ],
)
def test_what_spark_does_not_know_either(
    spark: SparkSession, uri: str, sql: str, error: type[Exception], message: str
) -> None:
    table = create(uri, PEOPLE, {"c": sql})
    tasks = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            tasks.add(1)
            yield batch

    frame = people(spark, (1, "Robert")).mapInArrow(count, "id long, name string")
    with refused(table, error, message):
        deltic.spark.write(frame, table)
    assert tasks.value == 0


def test_a_condition_with_intervals_in_the_sessions_time_zone(spark: SparkSession, uri: str) -> None:
    fields = [field("id", "long"), field("begun", "timestamp"), field("ended", "timestamp")]
    table = create(uri, fields, {"short": "ended < begun + INTERVAL 1 DAY", "noon": "date_part('HOUR', begun) = 12"})

    def write(ended: str) -> None:
        sql = "SELECT 1L AS id, TIMESTAMP '2026-03-07 12:00:00' AS begun, TIMESTAMP '{}' AS ended"
        deltic.spark.write(spark.sql(sql.format(ended)), table)

    # A day is 23 hours long here.
    write("2026-03-08 11:59:59")
    with refused(table, PySparkException, "`short`.*begun = 2026-03-07"):
        write("2026-03-08 12:00:00")
    assert rows(table)[0]["begun"] == datetime(2026, 3, 7, 12, tzinfo=ZoneInfo("America/Los_Angeles"))


def test_a_column_that_only_spark_generates(spark: SparkSession, uri: str) -> None:
    table = create(uri, [*PEOPLE, SOUND, generated("twice", "long", "id * 2")])
    deltic.spark.write(people(spark, (1, "Robert"), (2, None)), table)
    given = "id long, name string, Sound string"
    deltic.spark.write(people(spark, (3, "Rubin", "Xxxxx"), (4, None, None), schema=given), table)
    expected = [(1, "Xxxxxx", 2), (2, None, 4), (3, "Xxxxx", 6), (4, None, 8)]
    assert [(row["id"], row["sound"], row["twice"]) for row in rows(table)] == expected
    for sound in ("Xxxxxx", None):
        shown = "NULL" if sound is None else f"'{sound}'"
        message = rf"row 0 .*`sound` \(mask\(name\)\) gives: sound = {shown}, name = 'Rubin'"
        with refused(table, PySparkException, message):
            deltic.spark.write(people(spark, (5, "Rubin", sound), schema=given), table)


def test_generated_columns_of_other_types(spark: SparkSession, uri: str) -> None:
    numbers = [
        generated("small", "byte", "length(mask(name))"),
        generated("wide", "double", "length(mask(name))"),
    ]
    table = create(uri, [*PEOPLE, *numbers])
    deltic.spark.write(people(spark, (1, "abc")), table)
    assert rows(table) == [{"id": 1, "name": "abc", "small": 3, "wide": 3.0}]
    with refused(table, PySparkException, r"`small` \(length.* gives a value that the type tinyint cannot have"):
        deltic.spark.write(people(spark, (2, "a" * 200)), table)
    half = create(uri + "_half", [*PEOPLE, generated("half", "int", "length(mask(name)) / 2")])
    deltic.spark.write(people(spark, (1, "abcd"), (2, None)), half)
    assert [row["half"] for row in rows(half)] == [2, None]
    with refused(half, PySparkException, r"`half` \(length.* gives a value that the type int cannot have"):
        deltic.spark.write(people(spark, (3, "abc")), half)
    other = create(uri + "_other", [*PEOPLE, generated("day", "date", "mask(name)")])
    with refused(other, deltic.DelticError, "its value is string, and the column is date"):
        deltic.spark.write(people(spark, (1, "abc")), other)


def test_a_generated_partition_column(spark: SparkSession, uri: str) -> None:
    fields = [*PEOPLE, SOUND]
    table = create(uri, fields, {"known": "sound <> mask('Rubin') OR sound IS NULL"}, ["sound"])
    frame = people(spark, (1, "Robert"), (2, "Ann"), (3, ""), (4, None)).repartition(3)
    deltic.spark.write(frame, table)
    # An empty string is NULL in a partition column.
    assert [row["sound"] for row in rows(table)] == ["Xxxxxx", "Xxx", None, None]
    assert table.scan(filter="sound = 'Xxx'").to_arrow()["id"].to_pylist() == [2]
    with refused(table, PySparkException, "`known`.*sound = 'Xxxxx'"):
        deltic.spark.write(people(spark, (5, "Rubin")), table)
    deltic.spark.write(people(spark, (5, "Robert")), table, optimize_write=True)
    deltic.spark.write(people(spark, (6, "Ann")), table, "overwrite", partition_overwrite="dynamic")
    assert [(row["id"], row["sound"]) for row in rows(table)] == [
        (1, "Xxxxxx"), (3, None), (4, None), (5, "Xxxxxx"), (6, "Xxx"),
    ]  # fmt: skip


def test_defaults_that_only_spark_knows(spark: SparkSession, uri: str) -> None:
    fields = [
        field("id", "long"),
        default("key", "string", "uuid()"),
        default("hash", "string", "mask('Ab-1')"),
        default("known", "int", "7"),
        generated("length", "int", "length(mask(key))"),
    ]
    table = create(uri, fields, {"same": "crc32(encode(key, 'UTF-8')) >= 0 AND known = 7"})
    deltic.spark.write(spark.range(4).repartition(2), table)
    found = rows(table)
    assert len({row["key"] for row in found}) == 4
    assert {(len(row["key"]), row["length"], row["known"]) for row in found} == {(36, 36, 7)}
    assert {row["hash"] for row in found} == {"Xx-n"}
    with refused(table, PySparkException, "`same`.*key = NULL"):
        deltic.spark.write(spark.sql("SELECT 9L AS id, CAST(NULL AS STRING) AS key"), table)


def test_a_default_that_is_not_needed(spark: SparkSession, uri: str) -> None:
    table = create(uri, [field("id", "long"), default("key", "string", "frob()")])
    deltic.spark.write(people(spark, (1, "k"), schema="id long, key string"), table)
    assert rows(table) == [{"id": 1, "key": "k"}]
    with refused(table, deltic.UnsupportedFeatureError, "default of the column `key` .*frob.* Spark does not"):
        deltic.spark.write(spark.range(1), table)


def test_a_default_that_depends_on_a_column_is_refused(spark: SparkSession, uri: str) -> None:
    table = create(uri, [*PEOPLE, default("sound", "string", "mask(name)")])
    with refused(table, deltic.DelticError, "default of the column `sound`.*`name`"):
        deltic.spark.write(people(spark, (1, "Robert")), table)


def test_a_nested_field_and_an_invariant(spark: SparkSession, uri: str) -> None:
    invariant = json.dumps({"expression": {"expression": "length(mask(p.name)) < 6"}})
    inner = [field("name", "string", **{"delta.invariants": invariant}), field("x", "int")]
    table = create(
        uri, [field("id", "long"), field("p", {"type": "struct", "fields": inner})], {"sound": "mask(p.name) > 'A'"}
    )
    frame = people(spark, (1, ("Anna", 1)), schema="id long, p struct<name: string, x: int>")
    deltic.spark.write(frame, table)
    with refused(table, PySparkException, r"invariant of column `p.name` .*p.name = 'Christopher'"):
        deltic.spark.write(
            people(spark, (1, ("Christopher", 1)), schema="id long, p struct<name: string, x: int>"), table
        )
    assert rows(table) == [{"id": 1, "p": {"name": "Anna", "x": 1}}]
    with refused(table, deltic.InvalidInputError, "the column `p` is .*cast it to the table's type"):
        deltic.spark.write(people(spark, (1, (1, "Anna")), schema="id long, p struct<x: int, name: string>"), table)


NAMES = ["c0", "_deltic_condition_0", "a.b", "it`s", "two words"]


def test_column_mapping_and_odd_names(spark: SparkSession, uri: str) -> None:
    mapped = [
        field(name, "string", **{"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"})
        for at, name in enumerate(NAMES, 1)
    ]
    mapped.append(
        {**generated("g", "string", "mask(`a.b`)"), "type": "string"}
        | {
            "metadata": {
                "delta.generationExpression": "mask(`a.b`)",
                "delta.columnMapping.id": 6,
                "delta.columnMapping.physicalName": "col-6",
            }
        }
    )
    checks = {f"n{at}": f"mask(`{name.replace('`', '``')}`) = 'Xxxxxx'" for at, name in enumerate(NAMES)}
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "6"}
    table = create(uri, mapped, checks, properties=properties)
    good = dict.fromkeys(NAMES, "Robert")

    def frame(values: dict[str, str]) -> DataFrame:
        return spark.createDataFrame([tuple(values.values())], ", ".join(f"c{at} string" for at in range(5))).toDF(
            *values
        )

    deltic.spark.write(frame(good), table)
    assert rows(table, "c0") == [{**good, "g": "Xxxxxx"}]
    for at, name in enumerate(NAMES):
        with refused(table, PySparkException, f"`n{at}` "):
            deltic.spark.write(frame({**good, name: "Rubin"}), table)


def test_numbers_of_other_types(spark: SparkSession, uri: str) -> None:
    fields = [field("id", "long"), field("n", "short"), field("price", "decimal(9,2)")]
    table = create(uri, fields, {"bits": "bit_get(n, 0) = 1", "price": "mask(CAST(price AS STRING)) = 'n.nn'"})
    frame = spark.sql("SELECT 1 AS id, 3L AS n, CAST('1.5' AS DECIMAL(4, 1)) AS price")
    deltic.spark.write(frame, table)
    with refused(table, PySparkException, r"the column `n` is short in the table and long in the data; row 0 .*70001"):
        deltic.spark.write(spark.sql("SELECT 1 AS id, 70001L AS n, 1.5BD AS price"), table)
    with refused(table, deltic.InvalidInputError, "the column `price` is double, and decimal.*cast it"):
        deltic.spark.write(spark.sql("SELECT 1 AS id, 3L AS n, 1.5D AS price"), table)
    with refused(table, deltic.InvalidInputError, "the column `n` is short in the table and string in the data"):
        deltic.spark.write(spark.sql("SELECT 1 AS id, '3' AS n, 1.5BD AS price"), table)


def test_overwrites(spark: SparkSession, uri: str) -> None:
    table = create(uri, [*PEOPLE, field("part", "int")], SOUNDS, ["part"])
    schema = "id long, name string, part int"
    first = [(1, "Robert", 1), (2, "Rupert", 2), (3, "Robert", 3)]
    deltic.spark.write(people(spark, *first, schema=schema), table)
    arguments: list[dict[str, Any]] = [
        {},
        {"replace_where": "part = 2"},
        {"partition_overwrite": "dynamic"},
    ]
    for overwrite in arguments:
        with refused(table, PySparkException, "`sounds`.*Rubin"):
            deltic.spark.write(people(spark, (9, "Rubin", 2), schema=schema), table, "overwrite", **overwrite)
    deltic.spark.write(people(spark, (4, "Rupert", 2), schema=schema), table, "overwrite", replace_where="part = 2")
    assert [row["id"] for row in rows(table)] == [1, 3, 4]
    deltic.spark.write(
        people(spark, (5, "Rupert", 1), schema=schema), table, "overwrite", partition_overwrite="dynamic"
    )
    assert [row["id"] for row in rows(table)] == [3, 4, 5]
    deltic.spark.write(people(spark, (6, "Rupert", 1), schema=schema), table, "overwrite", optimize_write=True)
    assert [row["id"] for row in rows(table)] == [6]
    more = "id long, name string, part int, extra long"
    deltic.spark.write(people(spark, (7, "Robert", 1, 5), schema=more), table, schema_mode="merge")
    assert [row["extra"] for row in rows(table)] == [None, 5]
    other = people(spark, ("Robert", 1), schema="name string, part int")
    deltic.spark.write(other, table, "overwrite", schema_mode="overwrite")
    assert rows(table, "name") == [{"name": "Robert", "part": 1}]
    with refused(table, deltic.DelticError, "`sounds`.* Spark does not evaluate it either: .*`name`"):
        deltic.spark.write(
            people(spark, (1, 1), schema="id int, part int"), table, "overwrite", schema_mode="overwrite"
        )


def test_retried_tasks(spark: SparkSession, uri: str) -> None:
    table = create(uri, [*PEOPLE, SOUND], SOUNDS)

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails after its rows")

    names = spark.range(30).repartition(3).selectExpr("id", "'Robert' AS name")
    deltic.spark.write(names.mapInArrow(fail_once, "id long, name string"), table)
    assert [(row["id"], row["sound"]) for row in rows(table)] == [(number, "Xxxxxx") for number in range(30)]


def test_a_task_without_the_conditions_is_refused(spark: SparkSession, uri: str) -> None:
    table = create(uri, PEOPLE, SOUNDS)
    rows = people(spark, (1, "Robert")).toArrow()
    options = json.dumps({"engine_evaluates": True})
    plan = deltic._deltic.plan_write(table._core, rows.schema, options).write_plan(rows.schema)
    with refused(table, deltic.InvalidInputError, r"no values of the CHECK constraint `sounds` .*deltic\.spark\.write"):
        deltic._deltic.write_files(plan, None, rows, task=0)


def test_a_session_without_ansi(spark: SparkSession, uri: str) -> None:
    table = create(uri, PEOPLE, {"whole": "CAST(mask(name) AS INT) IS NULL"})
    with refused(table, PySparkException, "CAST_INVALID_INPUT"):
        deltic.spark.write(people(spark, (1, "Robert")), table)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        deltic.spark.write(people(spark, (1, "Robert")), table)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert len(rows(table)) == 1


def test_a_rule_that_deltic_knows_beside_one_that_it_does_not(spark: SparkSession, uri: str) -> None:
    table = create(uri, [*PEOPLE, default("rank", "int", "1")], {**SOUNDS, "ranked": "rank BETWEEN 1 AND 5"})
    deltic.spark.write(people(spark, (1, "Robert")), table)
    with refused(table, PySparkException, "`ranked`.*rank = 9"):
        deltic.spark.write(people(spark, (1, "Robert", 9), schema="id long, name string, rank int"), table)
    assert rows(table) == [{"id": 1, "name": "Robert", "rank": 1}]


def test_a_rule_that_would_have_another_value_in_another_write_is_refused(spark: SparkSession, uri: str) -> None:
    day = generated("day", "date", "CAST(begun AS date)")
    table = create(uri, [*PEOPLE, field("begun", "timestamp"), day], SOUNDS)
    frame = spark.sql("SELECT 1L AS id, 'Robert' AS name, TIMESTAMP '2024-01-02 03:00:00Z' AS begun")
    with refused(table, deltic.InvalidInputError, r"`day` \(CAST.* may depend on the time zone of the session"):
        deltic.spark.write(frame, table)


def test_a_condition_on_an_identity_column_that_the_rows_lack(spark: SparkSession, uri: str) -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
    table = create(uri, [*PEOPLE, field("key", "long", **identity)], {"c": "mask(name) = 'Xxxxxx' AND key > 0"})
    with refused(table, deltic.UnsupportedFeatureError, "`c` .*Spark does not evaluate it either: .*`key`"):
        deltic.spark.write(people(spark, (1, "Robert")), table)
    deltic.spark.write(people(spark, (1, "Robert", 7), schema="id long, name string, key long"), table)
    assert [row["key"] for row in rows(table)] == [7]


CONNECT = """
import sys
from pyspark.sql import SparkSession
import deltic, deltic.spark
from test_rules import PEOPLE, SOUNDS, create, people, refused

spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
table = create(sys.argv[1], PEOPLE, SOUNDS)
with refused(table, deltic.UnsupportedFeatureError, "Spark Connect does not show"):
    deltic.spark.write(people(spark, (1, "Robert")), table)
spark.stop()
"""


def test_spark_connect(in_connect: Callable[[str, str], None], uri: str) -> None:
    in_connect(CONNECT, uri)
