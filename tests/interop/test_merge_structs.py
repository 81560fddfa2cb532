"""MERGE WITH SCHEMA EVOLUTION of structs compared with delta-spark: random types and rows."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import VECTORS

import deltic

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession


def struct_type(rng: random.Random, depth: int) -> pa.StructType:
    """A struct with some of the fields; two such types have some fields in common."""
    fields = []
    for name in rng.sample("abcnmx", rng.randrange(1, 5)):
        if name in "abc":
            fields.append((name, pa.int32()))
        elif depth:
            inner = struct_type(rng, depth - 1)
            fields.append((name, {"n": inner, "m": pa.map_(pa.string(), inner), "x": pa.list_(inner)}[name]))
    return pa.struct(fields or [("a", pa.int32())])


def some_value(rng: random.Random, data_type: pa.DataType, is_key: bool = False) -> Any:
    if rng.random() < 0.2 and not is_key:
        return None
    if pa.types.is_struct(data_type):
        return {field.name: some_value(rng, field.type) for field in data_type}
    if pa.types.is_map(data_type):
        return [(key, some_value(rng, data_type.item_type)) for key in rng.sample("kl", rng.randrange(3))]
    if pa.types.is_list(data_type):
        return [some_value(rng, data_type.value_type) for _ in range(rng.randrange(3))]
    return rng.randrange(100)


def some_rows(rng: random.Random, data_type: pa.DataType, first: int) -> pa.Table:
    values = [some_value(rng, data_type) for _ in range(6)]
    return pa.table({"id": range(first, first + 6), "st": pa.array(values, data_type)})


CLAUSES = {
    "WHEN MATCHED THEN UPDATE SET *": lambda merge: merge.when_matched_update_all(),
    "WHEN NOT MATCHED THEN INSERT *": lambda merge: merge.when_not_matched_insert_all(),
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *": lambda merge: (
        merge.when_matched_update_all().when_not_matched_insert_all()
    ),
    "WHEN MATCHED THEN UPDATE SET st = s.st": lambda merge: merge.when_matched_update({"st": "s.st"}),
    "WHEN NOT MATCHED THEN INSERT (id, st) VALUES (s.id, s.st)": lambda merge: merge.when_not_matched_insert(
        {"id": "s.id", "st": "s.st"}
    ),
}


@pytest.mark.parametrize("seed", range(30))
def test_structs_evolve_alike(spark: SparkSession, uri: str, seed: int) -> None:
    rng = random.Random(seed)
    deltic.write(uri, some_rows(rng, struct_type(rng, 2), 0), properties=VECTORS if seed % 2 else None)
    theirs = uri + "-theirs"
    shutil.copytree(uri, theirs)
    source = some_rows(rng, struct_type(rng, 2), 3)
    sql, build = rng.choice(list(CLAUSES.items()))
    spark.createDataFrame(source).createOrReplaceTempView("news")
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{theirs}` t USING news s ON s.id = t.id {sql}")
    build(
        deltic.Table(uri).merge(source, "s.id = t.id", source_alias="s", target_alias="t").with_schema_evolution()
    ).execute()
    wanted = deltic.Table(theirs).scan().to_arrow().sort_by("id")
    assert deltic.Table(uri).snapshot().schema == deltic.Table(theirs).snapshot().schema
    assert deltic.Table(uri).scan().to_arrow().sort_by("id").to_pylist() == wanted.to_pylist(), sql
    by_spark = spark.read.format("delta").load(uri).sort("id").toArrow()
    assert by_spark.to_pylist() == wanted.to_pylist(), sql
