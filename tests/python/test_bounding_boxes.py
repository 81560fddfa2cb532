"""Bounding boxes of geometries and geographies in the statistics, compared with those of a simple model."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from sample import adds

import deltic

NAN, INFINITE = float("nan"), float("inf")

Point = tuple[float, ...]
"""X and Y, and the numbers of further dimensions."""


class Shape(NamedTuple):
    """A geometry. Its kind is that of WKB: 1 point, 2 line, 3 polygon, 4 to 6 several of these, 7 collection."""

    kind: int
    dimensions: str
    """`XY`, `XYZ`, `XYM` or `XYZM`."""
    parts: list[Any]
    """The point, the points of a line, the rings of a polygon, or shapes."""
    order: str = "<"
    """The byte order, as `struct` has it."""


def point(*numbers: float, dimensions: str = "XY", order: str = "<") -> Shape:
    return Shape(1, dimensions, [numbers], order)


def line(*points: Point, dimensions: str = "XY") -> Shape:
    return Shape(2, dimensions, list(points))


def polygon(*rings: list[Point]) -> Shape:
    return Shape(3, "XY", list(rings))


def several(kind: int, *shapes: Shape, dimensions: str = "XY") -> Shape:
    return Shape(kind, dimensions, list(shapes))


def encode(shape: Shape) -> bytes:
    """The well-known binary of a shape."""
    order, parts = shape.order, shape.parts
    code = shape.kind + 1000 * ["XY", "XYZ", "XYM", "XYZM"].index(shape.dimensions)
    out = struct.pack(f"{order}BI", order == "<", code)
    numbers = lambda points: b"".join(struct.pack(f"{order}{len(at)}d", *at) for at in points)  # noqa: E731
    counted = lambda items, content: struct.pack(f"{order}I", len(items)) + content  # noqa: E731
    if shape.kind == 1:
        return out + numbers(parts)
    if shape.kind == 2:
        return out + counted(parts, numbers(parts))
    if shape.kind == 3:
        return out + counted(parts, b"".join(counted(ring, numbers(ring)) for ring in parts))
    return out + counted(parts, b"".join(map(encode, parts)))


def points(shape: Shape) -> Iterator[tuple[dict[str, float], bool]]:
    """Each point by dimension, and whether it is in a line or a ring."""
    if shape.kind > 3:
        for part in shape.parts:
            yield from points(part)
    for ring in shape.parts if shape.kind == 3 else [shape.parts] if shape.kind < 3 else []:
        for numbers in ring:
            yield dict(zip(shape.dimensions, numbers, strict=True)), shape.kind > 1


def box(shapes: list[Shape | None], on_earth: bool = False) -> tuple[dict[str, float], dict[str, float]] | None:
    """The corners of the box of these shapes, by dimension; `None` if it has none."""
    found = []
    for shape in filter(None, shapes):
        for at, has_edges in points(shape):
            if not has_edges and math.isnan(at["X"]) and math.isnan(at["Y"]):
                continue
            if not math.isfinite(at["X"]) or not math.isfinite(at["Y"]):
                return None
            if on_earth and (has_edges or abs(at["X"]) > 180 or abs(at["Y"]) > 90):
                return None
            found.append(at)
    if not found:
        return None
    has = [name for name in "XYZM" if all(math.isfinite(at.get(name, NAN)) for at in found)]
    return {n: min(at[n] for at in found) for n in has}, {n: max(at[n] for at in found) for n in has}


def corner(text: str) -> dict[str, float]:
    """A point in well-known text. Its numbers have no exponent."""
    number = r"-?\d+(?:\.\d+)?"
    matched = re.fullmatch(rf"POINT(?: (Z|M|ZM))?\(({number}(?: {number})+)\)", text)
    assert matched, text
    return dict(zip("XY" + (matched[1] or ""), map(float, matched[2].split(" ")), strict=True))


def corners(stats: dict[str, Any], name: str) -> tuple[dict[str, float], dict[str, float]] | None:
    assert (name in stats["minValues"]) == (name in stats["maxValues"])
    if name not in stats["minValues"]:
        return None
    return corner(stats["minValues"][name]), corner(stats["maxValues"][name])


COLUMNS = {"shape": "geometry(EPSG:3857)", "place": "geography(OGC:CRS84, spherical)"}


def write(uri: str, shapes: list[Shape | None], **properties: str) -> dict[str, Any]:
    """The statistics of a file with these shapes in both columns, in a new table."""
    schema = pa.schema([deltic.field(name, kind) for name, kind in COLUMNS.items()])
    deltic.create(uri, schema, properties=properties)
    values = pa.array([None if shape is None else encode(shape) for shape in shapes], pa.binary())
    deltic.write(uri, pa.table(dict.fromkeys(COLUMNS, values)))
    (file,) = adds(uri, 1)
    return file["stats"]


HOLE = [(1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (1.0, 1.0)]
RING = [(-10.0, -5.0), (10.0, -5.0), (10.0, 5.5), (-10.0, -5.0)]
EMPTY = point(NAN, NAN)

# Shapes, and the corners of the geometry and the geography: two, or one if both are the same.
CASES: list[tuple[list[Shape | None], str, str]] = [
    ([point(-122.419, 37.774)], "POINT(-122.419 37.774)", "POINT(-122.419 37.774)"),
    ([point(1, 2), None, point(-1, 2.5, order=">")], "POINT(-1 2); POINT(1 2.5)", "POINT(-1 2); POINT(1 2.5)"),
    ([line((0, 10), (5, 0))], "POINT(0 0); POINT(5 10)", ""),
    # A hole is within its ring; these rings are no valid polygon, but have a box.
    ([polygon(RING, HOLE)], "POINT(-10 -5); POINT(10 5.5)", ""),
    ([polygon(HOLE, RING)], "POINT(-10 -5); POINT(10 5.5)", ""),
    ([several(4, point(3, 4), point(-3, 5))], "POINT(-3 4); POINT(3 5)", "POINT(-3 4); POINT(3 5)"),
    ([several(5, line((0, 0), (1, 1)), line((2, 2), (9, 1)))], "POINT(0 0); POINT(9 2)", ""),
    ([several(6, polygon(RING), polygon(HOLE))], "POINT(-10 -5); POINT(10 5.5)", ""),
    ([several(7, point(3, 4), several(7, line((0, 0), (9, 1))))], "POINT(0 0); POINT(9 4)", ""),
    ([several(7, point(3, 4), several(4, point(5, 1)))], "POINT(3 1); POINT(5 4)", "POINT(3 1); POINT(5 4)"),
    # Nothing has no box, and does not take that of others.
    ([None], "", ""),
    ([EMPTY, line(), polygon(), polygon([]), several(4), several(7)], "", ""),
    ([EMPTY, line(), polygon(), several(7, EMPTY), point(1, 2)], "POINT(1 2)", "POINT(1 2)"),
    # A coordinate that is no number is not in any box.
    ([point(1, NAN), point(1, 2)], "", ""),
    ([line((1, 2), (NAN, NAN)), point(1, 2)], "", ""),
    ([point(1, 2), point(INFINITE, 2)], "", ""),
    ([point(1, 2), point(0, -INFINITE)], "", ""),
    # The edges of the map, and beyond.
    ([point(-180, -90), point(180, 90)], "POINT(-180 -90); POINT(180 90)", "POINT(-180 -90); POINT(180 90)"),
    ([point(179, 0), point(-179, 0)], "POINT(-179 0); POINT(179 0)", "POINT(-179 0); POINT(179 0)"),
    ([point(181, 0)], "POINT(181 0)", ""),
    ([point(0, -90.5), point(0, 0)], "POINT(0 -90.5); POINT(0 0)", ""),
    # Z and M, if all points have them.
    ([point(1, 2, 3, dimensions="XYZ"), point(0, 5, -3, dimensions="XYZ")], *2 * ["POINT Z(0 2 -3); POINT Z(1 5 3)"]),
    ([point(1, 2, 3, dimensions="XYM"), EMPTY], "POINT M(1 2 3)", "POINT M(1 2 3)"),
    ([line((1, 2, 3, 4), (1, 2, 0, 5), dimensions="XYZM")], "POINT ZM(1 2 0 4); POINT ZM(1 2 3 5)", ""),
    ([point(1, 2, 3, dimensions="XYZ"), point(1, 2)], "POINT(1 2)", "POINT(1 2)"),
    ([point(1, 2), point(1, 2, 3, dimensions="XYM")], "POINT(1 2)", "POINT(1 2)"),
    ([point(1, 2, 3, 4, dimensions="XYZM"), point(1, 2, 0, dimensions="XYZ")], *2 * ["POINT Z(1 2 0); POINT Z(1 2 3)"]),
    ([point(1, 2, NAN, 4, dimensions="XYZM"), point(1, 2, 3, 4, dimensions="XYZM")], *2 * ["POINT M(1 2 4)"]),
    ([point(1, 2, INFINITE, dimensions="XYZ"), point(1, 2, 3, dimensions="XYZ")], *2 * ["POINT(1 2)"]),
    # Digits are kept, and zero has no sign.
    ([point(0.1 + 0.2, -0.0)], *2 * ["POINT(0.30000000000000004 0)"]),
    ([point(1e21, 5e-7)], "POINT(1000000000000000000000 0.0000005)", ""),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_corners_of_the_box_are_the_bounds(tmp_path: Path, case: int) -> None:
    shapes, *expected = CASES[case]
    stats = write(str(tmp_path / "t"), shapes)
    assert stats["nullCount"] == dict.fromkeys(COLUMNS, shapes.count(None))
    for name, text in zip(COLUMNS, expected, strict=True):
        low, _, high = text.partition("; ")
        found = stats["minValues"].get(name), stats["maxValues"].get(name)
        assert found == (low or None, high or low or None), name
        assert corners(stats, name) == box(shapes, name == "place")


NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -90.0, 180.0, 180.5, -1e-300, NAN, INFINITE]) | st.integers(-200, 200)
ANY = st.floats() | st.floats(-90, 90) | st.floats(-90, 90) | NUMBERS.map(float)
FEW = st.floats(-90, 90)


def of_numbers(numbers: st.SearchStrategy[float], dimensions: str) -> st.SearchStrategy[Shape]:
    at = st.tuples(*[numbers] * len(dimensions))
    order = st.sampled_from("<>")
    of = lambda kind, parts: st.builds(Shape, st.just(kind), st.just(dimensions), parts, order)  # noqa: E731
    alike = lambda kind, inner: of(kind, st.lists(inner, max_size=2))  # noqa: E731
    empty = st.just(Shape(1, dimensions, [(NAN,) * len(dimensions)]))
    one = of(1, at.map(lambda numbers: [numbers])) | empty
    path = of(2, st.lists(at, max_size=4))
    area = of(3, st.lists(st.lists(at, max_size=4), max_size=2))
    simple = st.one_of(one, one, path, area, alike(4, one), alike(4, one), alike(5, path), alike(6, area))
    return st.recursive(simple, lambda inner: alike(7, inner), max_leaves=4)


SHAPES = st.sampled_from(["XY", "XY", "XYZ", "XYM", "XYZM"]).flatmap(
    lambda dimensions: of_numbers(FEW, dimensions) | of_numbers(FEW, dimensions) | of_numbers(ANY, dimensions)
)
POINTS = st.tuples(FEW, FEW).map(lambda at: point(*at))


@hypothesis.given(
    shapes=st.lists(st.none() | SHAPES, min_size=1, max_size=4) | st.lists(POINTS, min_size=1, max_size=9)
)
@hypothesis.settings(
    max_examples=150, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_boxes_are_those_of_all_points(tmp_path_factory: pytest.TempPathFactory, shapes: list[Shape | None]) -> None:
    stats = write(str(tmp_path_factory.mktemp("boxes") / "t"), shapes)
    for name in COLUMNS:
        assert corners(stats, name) == box(shapes, name == "place"), name


def test_only_columns_with_statistics_have_boxes(tmp_path: Path) -> None:
    shapes: list[Shape | None] = [point(1, 2)]
    for number, (properties, expected) in enumerate(
        [
            ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
            ({"delta.dataSkippingNumIndexedCols": "1"}, {"shape"}),
            ({"delta.dataSkippingStatsColumns": "place"}, {"place"}),
            ({}, {"shape", "place"}),
        ]
    ):
        stats = write(str(tmp_path / str(number)), shapes, **properties)
        assert [set(stats[part]) for part in ("minValues", "maxValues", "nullCount")] == [expected] * 3


def test_nested_columns(tmp_path: Path) -> None:
    """A field of a struct has a box, without values below a null; elements of an array have none."""
    uri = str(tmp_path / "t")
    columns = [
        deltic.field("s", "struct<g: geometry(OGC:CRS84), n: int>"),
        deltic.field("l", "array<geometry(OGC:CRS84)>"),
    ]
    deltic.create(uri, pa.schema(columns))
    inner = pa.array([encode(point(*at)) for at in ((1, 2), (50, 60), (0, 3))])
    nested = pa.StructArray.from_arrays(
        [inner, pa.array([1, 2, 3], pa.int32())], ["g", "n"], mask=pa.array([False, True, False])
    )
    deltic.write(uri, pa.table({"s": nested, "l": pa.array([[value.as_py()] for value in inner])}))
    (file,) = adds(uri, 1)
    assert file["stats"]["minValues"] == {"s": {"g": "POINT(0 2)", "n": 1}}
    assert file["stats"]["maxValues"] == {"s": {"g": "POINT(1 3)", "n": 3}}
    assert file["stats"]["nullCount"] == {"s": {"g": 1, "n": 1}, "l": 0}


@pytest.mark.parametrize("as_struct", ["true", "false"])
def test_a_table_with_boxes_is_read_and_changed(tmp_path: Path, as_struct: str) -> None:
    """Also from a checkpoint. Filters keep all files, since a box does not order values."""
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64()), *(deltic.field(name, kind) for name, kind in COLUMNS.items())])
    deltic.create(uri, schema, properties={"delta.checkpoint.writeStatsAsStruct": as_struct})
    for number in range(3):
        value = encode(point(number, -number))
        deltic.write(uri, pa.table({"id": [number, number + 10], "shape": [value, None], "place": [value, None]}))
    for _ in range(2):
        table = deltic.Table(uri)
        whole = table.scan().to_arrow().sort_by("id").to_pylist()
        assert [row["id"] for row in whole] == [0, 1, 2, 10, 11, 12]
        assert [row["place"] for row in whole] == [*(encode(point(n, -n)) for n in range(3)), None, None, None]
        assert table.scan(columns=["id"], filter="shape IS NOT NULL").to_arrow()["id"].to_pylist() in (
            [0, 1, 2],
            [2, 1, 0],
        )
        assert table.scan(columns=["id"], filter="place IS NULL AND id > 10").to_arrow().num_rows == 2
        table.checkpoint()
    table.update({"id": "id + 100"}, where="id = 0")
    # The column of the box was copied.
    (updated,) = adds(uri, deltic.Table(uri).snapshot().version)
    assert corners(updated["stats"], "shape") == box([point(0, 0)])
    table.delete("id = 1")
    deltic.Table(uri).optimize()
    version = deltic.Table(uri).snapshot().version
    (file,) = adds(uri, version)
    assert corners(file["stats"], "shape") == corners(file["stats"], "place") == box([point(0, 0), point(2, -2)])
