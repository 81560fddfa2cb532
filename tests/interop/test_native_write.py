"""Random tables written by both engines of `deltic.spark.write`: every client reads the same rows and statistics.

delta-spark and delta-rs read and continue the tables of the native engine, whose files Spark's Parquet writer writes.
`DELTIC_SEED` repeats a run.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow.compute as pc
import pytest
from delta_spark import check_checksum
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sample import adds
from sample import rows as rows_of

import deltic
import deltic.spark

SEED = int(os.environ.get("DELTIC_SEED") or random.randrange(2**32))
NAMES = ["a", "B", "é日本", "x y", "a.b", "tick`", "100%", "_x", "k=v", "0"]
TEXTS = [
    "",
    "a",
    "é",
    "日本 🐎",
    "%41",
    "a/b=c{x}",
    "x" * 31,
    "x" * 33 + "é",
    "\U0010ffff" * 40,
    "__HIVE_DEFAULT_PARTITION__",
]
SHORT = [text for text in TEXTS if len(text.encode()) < 43]
Values = Callable[[random.Random], Any]


def moment(rng: random.Random) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=rng.randrange(-(2**55), 2**55))


def decimals(precision: int, scale: int) -> Values:
    most = 10**precision - 1
    exact = Context(prec=precision)  # the default context rounds to 28 digits
    return lambda rng: Decimal(rng.choice([-most, most, 0, 1, rng.randint(-most, most)])).scaleb(-scale, exact)


LEAVES: list[tuple[DataType, Values]] = [
    (BooleanType(), lambda rng: rng.random() < 0.5),
    (ByteType(), lambda rng: rng.randint(-128, 127)),
    (ShortType(), lambda rng: rng.choice([-(2**15), 2**15 - 1, rng.randint(-9, 9)])),
    (IntegerType(), lambda rng: rng.choice([-(2**31), 2**31 - 1, rng.randint(-9, 9)])),
    (LongType(), lambda rng: rng.choice([-(2**63), 2**63 - 1, rng.randint(-9, 9)])),
    (FloatType(), lambda rng: rng.choice([0.0, -0.0, float("nan"), float("-inf"), 1.5, 2.0**-149])),
    (DoubleType(), lambda rng: rng.choice([0.0, -0.0, float("nan"), float("inf"), 1e308, rng.random()])),
    (StringType(), lambda rng: rng.choice([*TEXTS, str(rng.random())])),
    (BinaryType(), lambda rng: bytearray(rng.randbytes(rng.randrange(4)))),
    (DateType(), lambda rng: date.fromordinal(rng.choice([1, 577_736, 3_652_059, rng.randint(1, 3_652_059)]))),
    (TimestampType(), moment),
    (TimestampNTZType(), moment),
    (DecimalType(4, 2), decimals(4, 2)),
    (DecimalType(18, 0), decimals(18, 0)),
    (DecimalType(38, 10), decimals(38, 10)),
]
PARTITIONED = [
    # Without the longest strings, which are too long for the name of a folder.
    (kind, (lambda rng: rng.choice(SHORT)) if isinstance(kind, StringType) else values)
    for kind, values in LEAVES
    if not isinstance(kind, BinaryType)
]


def drawn(rng: random.Random, depth: int = 0) -> tuple[DataType, Values]:
    """A random type, and values of it."""
    shape = rng.random() if depth < 3 else 0.0
    if shape < 0.7:
        return rng.choice(LEAVES)
    if shape < 0.85:
        names = rng.sample(NAMES, rng.randint(1, 3))
        inner = [drawn(rng, depth + 1) for _ in names]
        fields = [StructField(name, kind) for name, (kind, _) in zip(names, inner, strict=True)]
        return StructType(fields), lambda rng: tuple(maybe(rng, values) for _, values in inner)
    kind, values = drawn(rng, depth + 1)
    if shape < 0.95:
        return ArrayType(kind), lambda rng: [maybe(rng, values) for _ in range(rng.randrange(3))]
    return MapType(StringType(), kind), lambda rng: {f"k{n}": maybe(rng, values) for n in range(rng.randrange(3))}


def maybe(rng: random.Random, values: Values) -> Any:
    return None if rng.random() < 0.2 else values(rng)


def frame(spark: SparkSession, rng: random.Random) -> tuple[DataFrame, list[str]]:
    """A DataFrame of random columns, and its partition columns."""
    names = rng.sample(NAMES, rng.randint(2, 6))
    partitions = names[: rng.choice([0, 0, 1, 2])] if len(names) > 2 else []
    columns = [rng.choice(PARTITIONED) if name in partitions else drawn(rng) for name in names]
    schema = StructType([StructField(name, kind) for name, (kind, _) in zip(names, columns, strict=True)])
    data = [tuple(maybe(rng, values) for _, values in columns) for _ in range(rng.randrange(12))]
    return spark.createDataFrame(data, schema).coalesce(1), partitions


def without_lists(stats: Any, schema: StructType) -> Any:
    """Drop null counts of lists and maps, which Parquet footers lack, and structs that become empty."""
    found = {}
    for field in schema.fields:
        if isinstance(field.dataType, StructType) and field.name in stats:
            if inner := without_lists(stats[field.name], field.dataType):
                found[field.name] = inner
        elif field.name in stats and not isinstance(field.dataType, ArrayType | MapType):
            found[field.name] = stats[field.name]
    return found


def files(uri: str, schema: StructType) -> list[tuple[str, Any]]:
    found = []
    for add in adds(uri, 0):
        stats = {**add["stats"], "nullCount": without_lists(add["stats"]["nullCount"], schema)}
        found.append((json.dumps(add["partitionValues"], sort_keys=True), stats))
    return sorted(found, key=str)


@pytest.mark.parametrize("round", range(12))
def test_both_engines_write_the_same_table(spark: SparkSession, uri: str, round: int) -> None:
    rng = random.Random(f"{SEED} {round}")
    print(f"DELTIC_SEED={SEED}")
    df, partitions = frame(spark, rng)
    mapping = rng.choice(["none", "name", "id"]) if round % 2 else "none"
    if any(character in name for name in json_names(df.schema) for character in " ,;{}()\n\t="):
        mapping = mapping if mapping != "none" else "name"
    properties = {"delta.columnMapping.mode": mapping} if mapping != "none" else {}

    def refusal(engine: Any, place: str) -> Exception | None:
        try:
            deltic.spark.write(df, place, partition_by=partitions, properties=properties, engine=engine)
        except Exception as error:
            return error
        return None

    arrow, native = refusal("arrow", uri + "-arrow"), refusal("native", uri)
    assert (arrow is None) == (native is None), (arrow, native)
    if arrow is not None:
        assert partitions, "only a partition value may be refused"
        return
    ours = deltic.Table(uri).scan().to_arrow()
    assert rows_of(ours) == rows_of(deltic.Table(uri + "-arrow").scan().to_arrow())
    if mapping == "none":
        assert files(uri, df.schema) == files(uri + "-arrow", df.schema)
    assert rows_of(spark.read.format("delta").load(uri).toArrow()) == rows_of(ours)
    check_checksum(spark, uri, needed=False)
    count = ours.num_rows
    # Both clients continue the table.
    df.write.format("delta").mode("append").save(uri)
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    assert deltic.Table(uri).scan().count() == 2 * count
    deltic.spark.write(df, uri, engine="native")
    assert rows_of(spark.read.format("delta").load(uri).toArrow()) == rows_of(deltic.Table(uri).scan().to_arrow())
    assert spark.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS") is not None
    assert deltic.Table(uri).scan().count() == 3 * count
    assert deltic.Table(uri).check(files=True).ok


def json_names(kind: DataType) -> list[str]:
    """The names of all fields, at every depth."""
    if isinstance(kind, StructType):
        return [name for field in kind.fields for name in (field.name, *json_names(field.dataType))]
    if isinstance(kind, ArrayType):
        return json_names(kind.elementType)
    return json_names(kind.valueType) if isinstance(kind, MapType) else []


def test_values_that_are_too_long_for_a_folder_are_refused(spark: SparkSession, uri: str) -> None:
    df = spark.createDataFrame([("é" * 30, 1)], "p string, id int")
    with pytest.raises(Exception, match=r'column `p` is too long .* write with engine="arrow"'):
        deltic.spark.write(df, uri, partition_by="p", engine="native")
    deltic.spark.write(df, uri, partition_by="p", engine="arrow")
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == [{"p": "é" * 30, "id": 1}]
    deltic.spark.write(spark.createDataFrame([("é" * 25, 2)], "p string, id int"), uri, engine="native")
    assert deltic.Table(uri).scan().count() == 2


def test_delta_rs_reads_and_continues(spark: SparkSession, uri: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    df = spark.sql(
        "SELECT id, IF(id % 3 = 0, 'é/b=c%', 'x') AS p, CAST(id AS DOUBLE) / 2 AS d, timestamp_micros(id) AS at,"
        " array(named_struct('k', id)) AS l, CAST(id AS DECIMAL(20, 3)) AS n FROM range(60)"
    )
    deltic.spark.write(df, uri, partition_by="p", engine="native")
    table = deltalake.DeltaTable(uri)
    found = table.to_pyarrow_table()
    assert sorted(found.column("id").to_pylist()) == list(range(60))
    assert table.to_pyarrow_table(filters=[("d", ">", 29.0)]).num_rows == 1
    deltalake.write_deltalake(uri, found.filter(pc.field("id") < 5), mode="append")
    deltalake.DeltaTable(uri).delete("id >= 30")
    deltic.spark.write(df.where("id >= 30"), uri, engine="native")
    assert deltic.Table(uri).scan().count() == 65
    assert deltalake.DeltaTable(uri).to_pyarrow_table().num_rows == 65
