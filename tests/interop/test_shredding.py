"""Shredded variants: delta-spark reads those of deltic, and deltic those of Spark."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_spark import check_checksum
from turns import Turns

import deltic

CREATE = "CREATE TABLE @ (id BIGINT, v VARIANT) USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"


def random_value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 3 else 6):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice([0, 1, -1, 127, 128, 2**31, -(2**63), 2**63 - 1])
        case 3:
            return rng.choice([0.5, 1.25e300, -3.75])
        case 4 | 5:
            return rng.choice(["", "ü", "short", "x" * 63, "x" * 64, "y" * 200])
        case 6:
            return [random_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 3]))]
    names = ["a", "b", "A", "c", "with.dot", "value", "typed_value", "metadata", "element", "ü"]
    return {name: random_value(rng, depth + 1) for name in rng.sample(names, rng.randrange(6))}


def write(turns: Turns, values: list[Any], start: int) -> None:
    texts = [None if value == "NULL" else json.dumps(value) for value in values]
    ids = pa.array(range(start, start + len(values)), pa.int64())
    deltic.write(turns.uri, pa.table({"id": ids, "v": pa.array(texts, pa.string())}))


def read(turns: Turns) -> dict[int, Any]:
    check_checksum(turns.spark, turns.uri, needed=False)
    found = turns.spark.sql(f"SELECT id, v IS NULL n, to_json(v) AS v FROM {turns.at}").collect()
    return {row.id: "NULL" if row.n else json.loads(row.v) for row in found}


def is_shredded(turns: Turns) -> list[bool]:
    paths = deltic.Table(turns.uri).snapshot().files().read_all().column("path").to_pylist()
    types = [pq.read_schema(Path(turns.uri) / path).field("v").type for path in paths]
    return [found.get_field_index("typed_value") >= 0 for found in types]


@pytest.mark.parametrize("seed", range(4))
def test_spark_reads_any_json_that_deltic_shreds(turns: Turns, seed: int) -> None:
    rng = random.Random(seed)
    turns.sql(CREATE)
    made: list[Any] = []
    for _ in range(4):
        shape = {"a": rng.randrange(99), "b": {"c": "x", "d": [1, 2]}, "e": random_value(rng)}
        part = [shape if rng.random() < 0.5 else random_value(rng) for _ in range(60)]
        part = [value if rng.random() < 0.95 else "NULL" for value in part]
        write(turns, part, len(made))
        made += part
    assert any(is_shredded(turns))
    expected = dict(enumerate(made))
    assert read(turns) == expected
    deltic.Table(turns.uri).optimize()
    assert read(turns) == expected
    # This query reads paths from the typed columns.
    where = "try_variant_get(v, '$.b.c', 'string') = 'x'"
    query = f"SELECT id, try_variant_get(v, '$.a', 'bigint') a FROM {turns.at} WHERE {where}"
    mode = "spark.sql.codegen.factoryMode"
    before = turns.spark.conf.get(mode)
    # Spark's reader of typed columns requires generated code.
    turns.spark.conf.set(mode, "CODEGEN_ONLY")
    try:
        found = {row.id: row.a for row in turns.spark.sql(query).collect()}
    finally:
        turns.spark.conf.set(mode, before)
    matching = {i: v for i, v in expected.items() if isinstance(v, dict) and isinstance(v.get("b"), dict)}
    matching = {i: v for i, v in matching.items() if v["b"].get("c") == "x"}
    plain = {i: v.get("a") for i, v in matching.items()}
    assert set(found) == set(plain)
    numbers = {i: a for i, a in plain.items() if isinstance(a, int) and not isinstance(a, bool)}
    assert numbers
    assert {i: found[i] for i in numbers} == numbers


def test_every_type_of_spark_is_shredded_by_deltic_and_read_again(turns: Turns) -> None:
    turns.sql(CREATE)
    kinds = [
        "named_struct('d', DATE'1500-02-03', 't', TIMESTAMP'2020-01-01 01:02:03.4567', 'n', TIMESTAMP_NTZ'1600-01-01')",
        "named_struct('x', 1.25BD, 'y', 12345678901234567890.5BD, 'f', 1.5F, 'g', double('NaN'), 'i', 7Y, 'o', true)",
        "named_struct('b', X'00ff', 'l', array(1, 2, 3), 's', repeat('s', 100), 'z', named_struct('k', 1S))",
        "array(1.5BD, 22.75BD)",
    ]
    for at, kind in enumerate(kinds):
        turns.sql(f"INSERT INTO @ SELECT id + {at * 100}, to_variant_object({kind}) FROM range(20)")
    query = f"SELECT id, to_json(v) v, schema_of_variant(v) s FROM {turns.at} ORDER BY id"
    before = turns.spark.sql(query).collect()
    table = deltic.Table(turns.uri)
    rows = table.scan().to_arrow()
    for at in range(len(kinds)):
        part = rows.filter(pa.array([at * 100 <= i < at * 100 + 100 for i in rows.column("id").to_pylist()]))
        deltic.write(turns.uri, part, mode="overwrite" if at == 0 else "append")
    assert is_shredded(turns) == [True] * len(kinds)
    assert turns.spark.sql(query).collect() == before
