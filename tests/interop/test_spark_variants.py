"""Variants: delta-spark reads and continues those of deltic.spark, and deltic.spark those of delta-spark."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from delta_spark import check_checksum
from pyspark.sql import DataFrame
from sample import adds
from turns import Turns, in_delta_rs, newest_adds

import deltic
import deltic.spark

SEED = int(os.environ.get("DELTIC_SEED") or random.randrange(2**32))
SHREDS = {"delta.enableVariantShredding": "true"}
LITERALS = [
    "true",
    "-128Y",
    "32767S",
    "-2147483648",
    "9223372036854775807L",
    "1.5F",
    "float('NaN')",
    "-0.0D",
    "double('-Infinity')",
    "1.25BD",
    "12345678901234.5BD",
    "-99999999999999999999999999999999999999BD",
    "''",
    "'ü'",
    "repeat('x', 100)",
    "X''",
    "X'00ff'",
    "DATE'1500-02-03'",
    "TIMESTAMP'1600-01-01T01:02:03.456789Z'",
    "TIMESTAMP_NTZ'2020-01-01T01:02:03.456789'",
]
SCALARS = ["parse_json('null')", *(f"CAST({literal} AS VARIANT)" for literal in LITERALS)]
QUERY = [
    "id",
    "v IS NULL AS is_null",
    "to_json(v) AS v",
    "to_json(s.v) AS s",
    "transform(a, x -> (x IS NULL, to_json(x))) AS a",
    "transform_values(m, (k, x) -> to_json(x)) AS m",
]
KINDS = ["id", "schema_of_variant(v) AS v", "schema_of_variant(s.v) AS s"]


def drawn(rng: random.Random, depth: int = 0) -> str:
    """An SQL expression for a random variant."""
    shape = rng.random() if depth < 3 else 0.0
    if shape < 0.6:
        return rng.choice(SCALARS)
    inner = [drawn(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if shape < 0.8:
        return f"to_variant_object(array({', '.join(inner)}))"
    names = rng.sample(["a", "B", "b", "é", "value", "typed_value", "metadata"], len(inner))
    parts = ", ".join(f"'{name}', {part}" for name, part in zip(names, inner, strict=True))
    return f"to_variant_object(named_struct({parts}))"


def frame(turns: Turns, rng: random.Random, start: int) -> DataFrame:
    """Rows of random variants in columns, structs, arrays and maps, computed once."""

    def maybe() -> str:
        return "CAST(NULL AS VARIANT)" if rng.random() < 0.1 else drawn(rng)

    def row(at: int) -> str:
        v = f"to_variant_object(named_struct('n', {at}, 'x', 'same'))" if rng.random() < 0.6 else maybe()
        return (
            f"struct({at}L, {v}, named_struct('v', {maybe()}), array({maybe()}, {maybe()}), "
            f"map('k', {maybe()}, 'l', {maybe()}))"
        )

    rows = turns.spark.sql(f"SELECT inline(array({', '.join(row(start + at) for at in range(20))}))").collect()
    schema = "id long, v variant, s struct<v: variant>, a array<variant>, m map<string, variant>"
    return turns.spark.createDataFrame(rows, schema).coalesce(1)


def query_rows(frame: DataFrame, query: list[str] = QUERY) -> dict[int, Any]:
    return {row.id: row for row in frame.selectExpr(*query).collect()}


def is_shredded(turns: Turns, add: dict[str, Any]) -> bool:
    return bool(pq.read_schema(Path(turns.uri) / add["path"]).field("v").type.get_field_index("typed_value") >= 0)


@pytest.mark.parametrize("properties", [{}, SHREDS], ids=["whole", "shredded"])
def test_delta_spark_reads_random_variants_of_both_engines(turns: Turns, properties: dict[str, str]) -> None:
    rng = random.Random(f"{SEED} {bool(properties)}")
    deltic.spark.register(turns.spark)
    expected: dict[int, Any] = {}
    kinds: dict[int, Any] = {}
    for at, engine in enumerate(["arrow", "native", "format", "delta-spark"]):
        made = frame(turns, rng, at * 100)
        if engine == "delta-spark":
            made.write.format("delta").mode("append").save(turns.uri)
        elif engine == "format":
            made.write.format("deltic").mode("append").save(turns.uri)
        else:
            deltic.spark.write(made, turns.uri, properties=properties if at == 0 else None, engine=engine)  # type: ignore[arg-type]
            (add,) = newest_adds(turns.uri)
            assert is_shredded(turns, add) == (bool(properties) and engine == "arrow"), f"seed {SEED}"
        expected |= query_rows(made)
        kinds |= query_rows(made, KINDS)
        theirs = turns.spark.read.format("delta").load(turns.uri)
        assert query_rows(theirs) == expected, f"seed {SEED}"
        if not properties:
            assert query_rows(theirs, KINDS) == kinds, f"seed {SEED}"
    for found in (deltic.spark.read(turns.spark, turns.uri), turns.spark.read.format("deltic").load(turns.uri)):
        assert query_rows(found) == expected, f"seed {SEED}"
    check_checksum(turns.spark, turns.uri, needed=False)
    turns.describe()
    where = "try_variant_get(v, '$.x', 'string') = 'same'"
    query = f"SELECT id, try_variant_get(v, '$.n', 'int') AS n FROM {turns.at} WHERE {where}"
    mode = "spark.sql.codegen.factoryMode"
    before = turns.spark.conf.get(mode)
    assert before
    # Spark's reader of typed columns requires generated code.
    turns.spark.conf.set(mode, "CODEGEN_ONLY")
    try:
        numbers = {row.id: row.n for row in turns.spark.sql(query).collect()}
    finally:
        turns.spark.conf.set(mode, before)
    assert numbers
    assert numbers == {at: at for at in numbers}
    turns.sql("DELETE FROM @ WHERE id % 2 = 0", "OPTIMIZE @")
    assert query_rows(deltic.spark.read(turns.spark, turns.uri)) == {at: row for at, row in expected.items() if at % 2}


def test_variants_of_delta_spark_come_back(turns: Turns) -> None:
    """deltic returns the same bytes, since the files are not shredded."""
    rng = random.Random(SEED)
    columns = "id BIGINT, v VARIANT, s STRUCT<v: VARIANT>, a ARRAY<VARIANT>, m MAP<STRING, VARIANT>"
    turns.sql(f"CREATE TABLE @ ({columns}) USING delta")
    made = frame(turns, rng, 0)
    made.write.format("delta").mode("append").save(turns.uri)
    found = deltic.spark.read(turns.spark, turns.uri)
    assert found.schema == turns.spark.read.format("delta").load(turns.uri).schema

    def variants(frame: DataFrame) -> list[Any]:
        rows = frame.select("v", "s.v").orderBy("id").collect()
        return [[None if x is None else (bytes(x.value), bytes(x.metadata)) for x in row] for row in rows]

    assert variants(found) == variants(made), f"seed {SEED}"
    (add,) = adds(turns.uri, 1)
    assert not is_shredded(turns, add)


def test_delta_rs_reads_variants_of_spark(turns: Turns) -> None:
    made = turns.spark.range(3).selectExpr("id", "IF(id = 1, NULL, parse_json(concat('[', id, ']'))) AS v")
    for engine in ("arrow", "native"):
        deltic.spark.write(made.coalesce(1), turns.uri, "overwrite", engine=engine)  # type: ignore[arg-type]
        found = {row["id"]: row["v"] for row in in_delta_rs(turns.uri).to_pylist()}
        assert found[1] is None
        parts = {at: (value["value"], value["metadata"]) for at, value in found.items() if value is not None}
        variants = {row.id: row.v for row in made.collect() if row.v is not None}
        assert parts == {at: (bytes(v.value), bytes(v.metadata)) for at, v in variants.items()}
