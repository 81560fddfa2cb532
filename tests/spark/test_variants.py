"""Variants between Spark and tables, with both write engines and all ways to read."""

import datetime
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_spark import session_settings
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T
from sample import adds

import deltic
import deltic.spark
from deltic.spark.types.column_types import VARIANT
from deltic.spark.types.schema import fit

SEED = int(os.environ.get("DELTIC_SEED") or random.randrange(2**32))
ENGINES = ["arrow", "native"]
SHREDS = {"delta.enableVariantShredding": "true"}

LITERALS = {
    "NULL": ["parse_json('null')"],
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128Y", "0Y"],
    "SMALLINT": ["32767S", "-129S"],
    "INT": ["2147483647", "-32769"],
    "BIGINT": ["9223372036854775807L", "-9223372036854775808L"],
    "FLOAT": ["1.5F", "float('NaN')", "float('-Infinity')"],
    "DOUBLE": ["2.5D", "-0.0D", "double('NaN')", "1.7976931348623157E308D"],
    "DECIMAL": ["1.25BD", "12345678901234.5BD", "-99999999999999999999999999999999999999BD", "0.00BD"],
    "STRING": ["''", "'short'", "repeat('ü', 100)"],
    "BINARY": ["X''", "X'00ff'"],
    "DATE": ["DATE'1500-02-03'", "DATE'9999-12-31'"],
    "TIMESTAMP": ["TIMESTAMP'2020-01-01 01:02:03.456789Z'", "TIMESTAMP'1600-01-01 00:00:00Z'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2020-01-01 01:02:03.456789'", "TIMESTAMP_NTZ'1600-01-01'"],
}
"""SQL literals by type, which become variants."""
SCALARS = [f"CAST({literal} AS VARIANT)" for literals in LITERALS.values() for literal in literals]
DOORS = ["read", "format"]


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> Iterator[None]:
    deltic.spark.register(spark)
    zone = "spark.sql.session.timeZone"
    with session_settings(spark, {zone: str(spark.conf.get(zone))}):
        yield


def load(spark: SparkSession, uri: str, door: str) -> DataFrame:
    return deltic.spark.read(spark, uri) if door == "read" else spark.read.format("deltic").load(uri)


def bare(value: Any) -> Any:
    """A value with its variants replaced by their bytes."""
    if isinstance(value, T.VariantVal):
        return bytes(value.value), bytes(value.metadata)
    if isinstance(value, Row):
        return {name: bare(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {key: bare(part) for key, part in value.items()}
    return [bare(part) for part in value] if isinstance(value, list) else value


def rows(frame: DataFrame) -> list[Any]:
    return [bare(row) for row in frame.orderBy("id").collect()]


def variants_of(frame: DataFrame, *, kinds: bool = True) -> list[Any]:
    """Spark's results for the variants `v`: values, and with `kinds` the exact types, including number widths."""
    kind = "schema_of_variant(v)" if kinds else "NULL"
    columns = [
        "id",
        "v IS NULL AS is_null",
        "is_variant_null(v) AS is_variant_null",
        "to_json(v) AS json",
        f"{kind} AS kind",
    ]
    return frame.selectExpr(*columns).orderBy("id").collect()


def drawn(rng: random.Random, depth: int = 0) -> str:
    """An SQL expression for a random variant."""
    shape = rng.random() if depth < 3 else 0.0
    if shape < 0.6:
        return rng.choice(SCALARS)
    inner = [drawn(rng, depth + 1) for _ in range(rng.randrange(4))]
    if shape < 0.8:
        return f"to_variant_object(array({', '.join(inner)}))" if inner else "parse_json('[]')"
    names = rng.sample(["a", "B", "b", "é", "with.dot", "value", "typed_value", "metadata", "variant"], len(inner))
    parts = ", ".join(f"'{name}', {part}" for name, part in zip(names, inner, strict=True))
    return f"to_variant_object(named_struct({parts}))" if inner else "parse_json('{}')"


def frame_of(spark: SparkSession, expressions: list[str]) -> DataFrame:
    """A row for each expression, with ids from 0. Computed once, so that all queries see the same values."""
    made = spark.sql(f"SELECT posexplode(array({', '.join(expressions)})) AS (id, v)").collect()
    return spark.createDataFrame(made, "id long, v variant").coalesce(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_type_comes_back_with_its_bytes(spark: SparkSession, uri: str, engine: Any) -> None:
    frame = frame_of(spark, ["CAST(NULL AS VARIANT)", *SCALARS])
    deltic.spark.write(frame, uri, engine=engine)
    expected, variants = rows(frame), variants_of(frame)
    for door in DOORS:
        found = load(spark, uri, door)
        assert found.schema["v"].dataType == T.VariantType()
        assert rows(found) == expected
        assert variants_of(found) == variants
    # A variant null is not an SQL NULL.
    assert [tuple(row) for row in variants[:2]] == [(0, True, False, None, None), (1, False, True, "null", "VOID")]


def test_variant_get_returns_values_of_every_type(spark: SparkSession, uri: str) -> None:
    parts = {
        "t": ("tinyint", -5, "-5Y"),
        "s": ("smallint", 300, "300S"),
        "i": ("int", 70_000, "70000"),
        "l": ("bigint", 2**40, f"{2**40}L"),
        "f": ("float", 1.5, "1.5F"),
        "d": ("double", 2.25, "2.25D"),
        "c": ("decimal(5,2)", Decimal("1.25"), "1.25BD"),
        "x": ("string", "ü", "'ü'"),
        "b": ("binary", bytearray(b"\0\xff"), "X'00ff'"),
        "o": ("boolean", True, "true"),
        "y": ("date", datetime.date(1500, 2, 3), "DATE'1500-02-03'"),
        "n": (
            "timestamp_ntz",
            datetime.datetime(2020, 1, 1, 1, 2, 3, 456789),
            "TIMESTAMP_NTZ'2020-01-01 01:02:03.456789'",
        ),
    }
    made = ", ".join(f"'{name}', {literal}" for name, (_, _, literal) in parts.items())
    frame = spark.sql(f"SELECT 1L AS id, to_variant_object(named_struct('in', array(named_struct({made})))) AS v")
    wanted = tuple(value for _, value, _ in parts.values())
    got = [f"variant_get(v, '$.in[0].{name}', '{kind}')" for name, (kind, _, _) in parts.items()]
    for engine in ENGINES:
        deltic.spark.write(frame, f"{uri}-{engine}", engine=engine)  # type: ignore[arg-type]
        for door in DOORS:
            assert tuple(load(spark, f"{uri}-{engine}", door).selectExpr(*got).collect()[0]) == wanted


NESTED = {
    "s": "named_struct('v', {}, 'k', id, 'w', {})",
    "a": "array({}, NULL, {})",
    "m": "map('k', {}, 'n', NULL)",
    "d": "array(named_struct('m', map(id, array({}))), NULL)",
    # Fields with the names of a variant's parts in Parquet.
    "metadata": "named_struct('metadata', X'01', 'value', X'02')",
    "value": "IF(id % 2 = 0, NULL, {})",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_variants_inside_of_columns(spark: SparkSession, uri: str, engine: Any) -> None:
    columns = [f"{text.format(*rng_pair(at))} AS `{name}`" for at, (name, text) in enumerate(NESTED.items())]
    frame = spark.range(8).selectExpr("id", "IF(id % 3 = 0, NULL, parse_json(concat('[', id, ']'))) AS v", *columns)
    frame = frame.selectExpr("*", "IF(id < 4, NULL, s) AS sn", "IF(id < 4, NULL, a) AS an", "IF(id > 4, NULL, m) AS mn")
    expected = rows(frame)
    deltic.spark.write(frame.repartition(2), uri, engine=engine)
    for door in DOORS:
        found = load(spark, uri, door)
        assert found.schema.simpleString() == frame.schema.simpleString()
        assert rows(found) == expected
    # Selected columns, selected struct fields, and no rows.
    chosen = spark.read.format("deltic").schema("id long, s struct<w: variant>, m map<string, variant>").load(uri)
    assert rows(chosen) == rows(frame.selectExpr("id", "named_struct('w', s.w) AS s", "m"))
    assert rows(deltic.spark.read(spark, uri, ["id", "d"], "id < 3")) == rows(frame.select("id", "d").where("id < 3"))
    assert deltic.spark.read(spark, uri, filter="id > 90").select("v").collect() == []


def rng_pair(seed: int) -> tuple[str, str]:
    rng = random.Random(seed)
    return drawn(rng), drawn(rng)


@pytest.mark.parametrize("properties", [{}, SHREDS], ids=["whole", "shredded"])
@pytest.mark.parametrize("door", ["arrow", "native", "format"])
def test_random_variants(spark: SparkSession, uri: str, door: str, properties: dict[str, str]) -> None:
    rng = random.Random(f"{SEED} {door} {bool(properties)}")
    deltic.create(
        uri,
        pa.schema([("id", pa.int64()), pa.field("v", VARIANT, metadata={"delta.type": "variant"})]),
        properties=properties,
    )
    common = "to_variant_object(named_struct('a', {}, 'b', named_struct('c', 'x', 'd', {}D)))"
    expressions = [
        "CAST(NULL AS VARIANT)" if rng.random() < 0.1 else common.format(n, n / 2) if rng.random() < 0.5 else drawn(rng)
        for n in range(60)
    ]
    frame = frame_of(spark, expressions)
    if door == "format":
        frame.write.format("deltic").mode("append").save(uri)
    else:
        deltic.spark.write(frame, uri, engine=door)  # type: ignore[arg-type]
    (add,) = adds(uri, 1)
    parts = pq.read_schema(Path(uri) / add["path"]).field("v").type
    assert (parts.get_field_index("typed_value") >= 0) == (bool(properties) and door != "native"), f"seed {SEED}"
    is_whole = parts.get_field_index("typed_value") < 0
    found = load(spark, uri, rng.choice(DOORS))
    assert variants_of(found, kinds=is_whole) == variants_of(frame, kinds=is_whole), f"seed {SEED}"
    if is_whole:
        assert rows(found) == rows(frame), f"seed {SEED}"
    assert deltic.Table(uri).check(files=True).ok


def test_a_session_that_shreds_changes_nothing_of_the_native_engine(spark: SparkSession, uri: str) -> None:
    names = ["spark.sql.variant.writeShredding.enabled", "spark.sql.variant.inferShreddingSchema"]
    for name in names:
        spark.conf.set(name, "true")
    try:
        frame = spark.range(50).selectExpr("id", "to_variant_object(named_struct('a', id)) AS v")
        deltic.spark.write(frame, uri, engine="native")
        assert [spark.conf.get(name) for name in names] == ["true", "true"]
    finally:
        for name in names:
            spark.conf.unset(name)
    for add in adds(uri, 0):
        assert set(pq.read_schema(Path(uri) / add["path"]).field("v").type.names) == {"metadata", "value"}
    assert variants_of(deltic.spark.read(spark, uri)) == variants_of(frame)


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_of_variants_are_mapped_added_and_left_out(spark: SparkSession, uri: str, engine: Any) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    frame = spark.range(3).selectExpr("id", "parse_json(concat('', id)) AS v", "array(parse_json('1')) AS a")
    deltic.spark.write(frame.select("id", "a"), uri, properties=properties, engine=engine)
    more = frame.selectExpr("id + 10 AS id", "v")
    deltic.spark.write(more, uri, schema_mode="merge", engine=engine)
    found = deltic.spark.read(spark, uri)
    assert found.schema.simpleString() == "struct<id:bigint,a:array<variant>,v:variant>"
    wanted = frame.selectExpr("id", "a", "CAST(NULL AS VARIANT) AS v").union(more.selectExpr("id", "NULL AS a", "v"))
    assert rows(found) == rows(wanted)
    features = deltic.Table(uri).snapshot().protocol
    assert "variantType" in features["readerFeatures"]
    assert "variantType" in features["writerFeatures"]


def test_statistics_count_nulls(spark: SparkSession, uri: str) -> None:
    frame = spark.range(5).coalesce(1).selectExpr("id", "IF(id < 2, NULL, parse_json('null')) AS v")
    deltic.spark.write(frame, uri, engine="arrow")
    deltic.spark.write(frame, uri, engine="native")
    (arrow,), (native,) = adds(uri, 0), adds(uri, 1)
    assert arrow["stats"]["nullCount"] == {"id": 0, "v": 2}
    # Parquet footers count nulls of the parts of a variant.
    assert native["stats"]["nullCount"] == {"id": 0}
    for add in (arrow, native):
        assert (add["stats"]["minValues"], add["stats"]["maxValues"]) == ({"id": 0}, {"id": 4})


def test_rows_are_merged_and_their_changes_read(spark: SparkSession, uri: str) -> None:
    frame = spark.range(4).selectExpr("id", "parse_json(concat('{\"n\": ', id, '}')) AS v")
    deltic.spark.write(frame, uri, properties={"delta.enableChangeDataFeed": "true"})
    news = spark.range(2, 6).selectExpr("id", "IF(id = 5, NULL, parse_json(concat('\"', id, '\"'))) AS v")
    merge = deltic.spark.merge(spark, uri, news, "source.id = target.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = frame.where("id < 2").union(news)
    assert variants_of(deltic.spark.read(spark, uri)) == variants_of(expected)
    feed = spark.read.format("deltic").option("readChangeFeed", "true").option("startingVersion", "1").load(uri)
    found = feed.selectExpr("_change_type AS kind", "id", "to_json(v) AS v").orderBy("kind", "id").collect()
    assert [tuple(row) for row in found] == [
        ("insert", 4, '"4"'),
        ("insert", 5, None),
        ("update_postimage", 2, '"2"'),
        ("update_postimage", 3, '"3"'),
        ("update_preimage", 2, '{"n":2}'),
        ("update_preimage", 3, '{"n":3}'),
    ]


def test_types_of_other_writers_keep_their_bytes(spark: SparkSession, uri: str) -> None:
    empty = b"\x01\x00\x00"
    values = {
        "uuid": bytes([20 << 2]) + bytes(range(16)),
        "time": bytes([17 << 2]) + (3_600_000_000).to_bytes(8, "little"),
        "timestamp of nanoseconds": bytes([18 << 2]) + (10**18 + 1).to_bytes(8, "little"),
        "timestamp_ntz of nanoseconds": bytes([19 << 2]) + (10**18 + 1).to_bytes(8, "little"),
    }
    made = [(at, T.VariantVal(value, empty)) for at, value in enumerate(values.values())]
    frame = spark.createDataFrame(made, "id long, v variant")
    for engine in ENGINES:
        deltic.spark.write(frame, f"{uri}-{engine}", engine=engine)  # type: ignore[arg-type]
        for door in DOORS:
            assert rows(load(spark, f"{uri}-{engine}", door)) == [
                {"id": at, "v": (value, empty)} for at, value in enumerate(values.values())
            ]


def test_bytes_that_are_no_variant_are_refused(spark: SparkSession, uri: str) -> None:
    frame = spark.createDataFrame([(1, T.VariantVal(b"\x02\x05", b"\x01\x00\x00"))], "id long, v variant")
    with pytest.raises(PythonException, match=r"the column `v` is variant in the table; row 0 .* is not a variant"):
        deltic.spark.write(frame, uri, engine="arrow")
    assert not deltic.Table(uri).exists()


def test_a_variant_cannot_be_a_partition_column(spark: SparkSession, uri: str) -> None:
    frame = spark.range(2).selectExpr("id", "parse_json('1') AS v")
    for engine in ENGINES:
        with pytest.raises(deltic.DelticError, match=r"`v`.*partition|partition.*`v`"):
            deltic.spark.write(frame, uri, partition_by="v", engine=engine)  # type: ignore[arg-type]


def test_variants_are_converted_to_the_layout_of_spark_at_every_depth() -> None:
    stored = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    marked = {"delta.type": "variant"}

    def schema(kind: pa.DataType, mark: dict[str, str] | None) -> pa.Schema:
        inner = pa.struct([pa.field("k", pa.int32()), pa.field("q", kind, metadata=mark)])
        lists = pa.list_(pa.field("element", kind, metadata=mark))
        maps = pa.map_(pa.field("key", pa.string(), False), pa.field("value", kind, metadata=mark))
        fields = [("v", kind), ("s", inner), ("l", lists), ("m", maps), ("d", pa.list_(pa.field("element", inner)))]
        return pa.schema([pa.field(name, t, metadata=mark if t is kind else None) for name, t in fields])

    rng = random.Random(SEED)

    def maybe(made: Any) -> Any:
        return None if rng.random() < 0.3 else made

    def variant() -> Any:
        return maybe({"metadata": rng.randbytes(rng.randrange(4)), "value": rng.randbytes(rng.randrange(4))})

    def inner() -> Any:
        return maybe({"k": rng.randrange(9), "q": variant()})

    def several(made: Any) -> Any:
        return maybe([made() for _ in range(rng.randrange(4))])

    def row() -> dict[str, Any]:
        pairs = maybe([(str(n), variant()) for n in range(rng.randrange(3))])
        return {"v": variant(), "s": inner(), "l": several(variant), "m": pairs, "d": several(inner)}

    made = [row() for _ in range(200)]
    whole = pa.RecordBatch.from_pylist(made, schema(stored, marked))
    wanted = schema(VARIANT, None)
    for batch, expected in ((whole, made), (whole.slice(17, 101), made[17:118]), (whole.slice(0, 0), [])):
        found = fit(batch, wanted, wanted)
        found.validate(full=True)
        assert found.schema.equals(wanted, check_metadata=True)
        assert found.to_pylist() == expected, f"seed {SEED}"
