"""VARIANT, GEOMETRY and GEOGRAPHY values that deltic writes: delta-spark reads the same."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from delta_spark import check_checksum
from turns import Turns, leaves, newest_adds

import deltic

VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


def as_json(turns: Turns) -> dict[int, Any]:
    """The variants that delta-spark reads, by id."""
    check_checksum(turns.spark, turns.uri, needed=False)
    found = turns.spark.sql(f"SELECT id, to_json(v) AS v FROM {turns.at}").collect()
    return {row.id: None if row.v is None else json.loads(row.v) for row in found}


@pytest.mark.parametrize("property", ["", "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"])
def test_variants(turns: Turns, property: str) -> None:
    turns.sql(
        f"CREATE TABLE @ (id BIGINT, v VARIANT, l ARRAY<VARIANT>) USING delta {property}",
        "INSERT INTO @ SELECT id, parse_json('{\"a\": 1, \"b\": [true, null]}'), array(parse_json('7')) FROM range(2)",
    )
    theirs = newest_adds(turns.uri)
    values = [7, None, "text", {"a": [1.5, {"b": "ü"}], "c": False}, [], -(2**62)]
    texts = [None if value is None else json.dumps(value) for value in values]
    lists = [[text, None] for text in texts]
    rows = pa.table({"id": range(10, 16), "v": texts, "l": pa.array(lists, pa.list_(pa.string()))})
    version = deltic.write(turns.uri, rows).version
    (ours,) = newest_adds(turns.uri)
    for part in ("minValues", "maxValues", "nullCount"):
        assert leaves(ours["stats"][part]) == leaves(theirs[0]["stats"][part])
    assert ours["stats"]["nullCount"] == {"id": 0, "v": 1, "l": 0}
    expected = {n: {"a": 1, "b": [True, None]} for n in range(2)} | dict(zip(range(10, 16), values, strict=True))
    assert as_json(turns) == expected
    found = turns.spark.sql(f"SELECT id, to_json(l[0]) AS v FROM {turns.at} WHERE id >= 10").collect()
    assert {row.id: None if row.v is None else json.loads(row.v) for row in found} == dict(
        zip(range(10, 16), values, strict=True)
    )
    # deltic writes the bytes that it read.
    read = deltic.Table(turns.uri).scan().to_arrow()
    assert read.schema.field("v").type == VARIANT
    deltic.write(turns.uri, read, mode="overwrite")
    turns.describe()
    assert as_json(turns) == expected
    # Variants in Spark's Arrow layout.
    of_spark = turns.spark.sql("SELECT 30L AS id, parse_json('[1, {\"k\": 2.5}]') AS v").toArrow()
    deltic.write(turns.uri, of_spark)
    assert as_json(turns) == expected | {30: [1, {"k": 2.5}]}
    deltic.create(f"{turns.uri}-of-spark", of_spark.schema)
    assert deltic.Table(f"{turns.uri}-of-spark").snapshot().schema.field("v").metadata == {b"delta.type": b"variant"}
    turns.sql("INSERT INTO @ SELECT 99, parse_json('{\"z\": 1}'), null")
    deltic.write(turns.uri, rows.set_column(0, "id", pa.array(range(20, 26))))
    assert len(as_json(turns)) == 16
    assert deltic.Table(turns.uri).snapshot().version == version + 4


def in_kernel(turns: Turns, corner: str) -> list[float]:
    """X and Y of a corner of a box, as Delta Kernel reads them."""
    jvm: Any = turns.spark._jvm
    return list(jvm.io.delta.kernel.internal.util.GeometryUtils.parsePointXY(corner))


def ids_where(turns: Turns, condition: str) -> list[int]:
    return sorted(row.id for row in turns.spark.sql(f"SELECT id FROM {turns.at} WHERE {condition}").collect())


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


@pytest.fixture
def spatial(turns: Turns) -> Iterator[Turns]:
    turns.spark.conf.set("spark.databricks.delta.geo.preview.enabled", "true")
    yield turns
    turns.spark.conf.unset("spark.databricks.delta.geo.preview.enabled")


SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


@pytest.mark.skipif(SPARK < (4, 2), reason="GEOMETRY and GEOGRAPHY need Spark 4.2 or newer")
def test_geometries(spatial: Turns) -> None:
    spatial.sql(
        "CREATE TABLE @ (id BIGINT, shape GEOMETRY(4326), place GEOGRAPHY(4326), l ARRAY<GEOMETRY(4326)>) USING delta "
        "TBLPROPERTIES ('delta.checkpointInterval' = '3')"
    )
    hexed = point(1, 2).hex()
    spatial.sql(
        f"INSERT INTO @ SELECT 0, ST_GeomFromWKB(X'{hexed}', 4326), ST_GeogFromWKB(X'{hexed}'), "
        f"array(ST_GeomFromWKB(X'{hexed}', 4326))"
    )
    (theirs,) = newest_adds(spatial.uri)
    points = [point(3, 4), None]
    deltic.write(
        spatial.uri, pa.table({"id": [1, 2], "shape": points, "place": points, "l": [[value] for value in points]})
    )
    (ours,) = newest_adds(spatial.uri)
    assert leaves(ours["stats"]["nullCount"]) == leaves(theirs["stats"]["nullCount"])
    # delta-spark writes no boxes, but Delta Kernel in the same release does.
    boxes = {name: bounds for name, bounds in ours["stats"]["minValues"].items() if name != "id"}
    assert boxes == dict.fromkeys(["shape", "place"], "POINT(3 4)")
    assert in_kernel(spatial, boxes["shape"]) == [3, 4]
    check_checksum(spatial.spark, spatial.uri, needed=False)
    query = "SELECT id, ST_AsBinary(shape) a, ST_AsBinary(place) b, ST_AsBinary(l[0]) c FROM "
    found = spatial.spark.sql(query + spatial.at).collect()
    read = {row.id: tuple(None if v is None else bytes(v) for v in (row.a, row.b, row.c)) for row in found}
    assert read == {0: (point(1, 2),) * 3, 1: (point(3, 4),) * 3, 2: (None, None, None)}
    assert ids_where(spatial, "shape IS NOT NULL") == [0, 1]
    assert ids_where(spatial, "place IS NULL AND id > 0") == [2]
    with pytest.raises(deltic.InvalidInputError, match="well-known binary: it is cut off"):
        deltic.write(spatial.uri, pa.table({"id": [3], "shape": [point(1, 2)[:9]]}))
    spatial.describe()
    shapes = [point(-180, 0.1), struct.pack("<BIddd", 1, 1001, 1e21, -5e-7, 2), point(float("nan"), float("nan"))]
    deltic.write(spatial.uri, pa.table({"id": [7, 8, 9], "shape": shapes, "place": [*shapes[:1], None, shapes[2]]}))
    assert deltic.Table(spatial.uri).snapshot().version == 3
    (ours,) = newest_adds(spatial.uri)
    assert in_kernel(spatial, ours["stats"]["minValues"]["shape"]) == [-180, -5e-7]
    assert in_kernel(spatial, ours["stats"]["maxValues"]["shape"]) == [1e21, 0.1]
    # delta-spark reads the statistics from deltic's checkpoint, and writes them to its own.
    assert ids_where(spatial, "shape IS NOT NULL AND id > 0") == [1, 7, 8, 9]
    spatial.sql("INSERT INTO @ VALUES (4, null, null, null)", "OPTIMIZE @", "DELETE FROM @ WHERE id = 7")
    assert deltic.Table(spatial.uri).check().ok
    deltic.write(spatial.uri, pa.table({"id": [5], "shape": [point(0, 0)]}), mode="overwrite")
    assert spatial.spark.sql(f"SELECT id FROM {spatial.at}").collect()[0].id == 5
