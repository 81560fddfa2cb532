"""MERGE WITH SCHEMA EVOLUTION of structs. The expected rows are those of delta-spark 4.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from changed_rows import VECTORS

import deltic
from deltic import InvalidInputError, Table

ON = "source.id = target.id"
AB = pa.struct({"a": pa.int32(), "b": pa.int32()})
NESTED = pa.struct({"a": pa.int32(), "b": pa.int32(), "n": pa.struct({"p": pa.int32(), "q": pa.int32()})})
OF_AB: list[Any] = [{"a": 1, "b": 2}, {"a": 5, "b": 6}, None, {"a": None, "b": None}]
OF_NESTED: list[Any] = [
    {"a": 1, "b": 2, "n": {"p": 3, "q": 4}},
    {"a": 5, "b": 6, "n": {"p": 7, "q": 8}},
    None,
    {"a": 5, "b": 6, "n": None},
]


def rows(values: list[Any], data_type: pa.DataType, first: int = 1) -> pa.Table:
    """Rows with the ids from `first`."""
    return pa.table({"id": range(first, first + len(values)), "st": pa.array(values, data_type)})


def merged(uri: str, target: pa.Table, source: pa.Table, build: Callable[[Any], Any]) -> list[Any]:
    """The structs of the table by id after a merge, with deletion vectors and without."""
    found = []
    for number, properties in enumerate(({}, VECTORS)):
        table = Table(f"{uri}{number}")
        deltic.write(table, target, properties=properties)
        build(table.merge(source, ON).with_schema_evolution()).execute()
        assert table.check(files=True).ok
        found.append(table.scan().to_arrow().sort_by("id")["st"].to_pylist())
    assert found[0] == found[1]
    return found[0]


def upsert(merge: deltic.Merge[Any]) -> deltic.Merge[Any]:
    return merge.when_matched_update_all().when_not_matched_insert_all()


def test_an_update_of_all_columns_keeps_the_fields_that_the_source_lacks(uri: str) -> None:
    wider = pa.struct({"b": pa.int32(), "c": pa.string(), "n": pa.struct({"q": pa.int32(), "r": pa.int32()})})
    source = [
        {"b": b, "c": c, "n": {"q": b + 20, "r": b + 30}} for b, c in ((60, "x"), (61, "y"), (62, "z"), (63, "i"))
    ]
    expected = [
        {"a": 1, "b": 2, "n": {"p": 3, "q": 4, "r": None}, "c": None},
        {"a": 5, "b": 60, "n": {"p": 7, "q": 80, "r": 90}, "c": "x"},
        {"a": None, "b": 61, "n": {"p": None, "q": 81, "r": 91}, "c": "y"},
        {"a": 5, "b": 62, "n": {"p": None, "q": 82, "r": 92}, "c": "z"},
        {"a": None, "b": 63, "n": {"p": None, "q": 83, "r": 93}, "c": "i"},
    ]
    assert merged(uri, rows(OF_NESTED, NESTED), rows(source, wider, 2), upsert) == expected
    names = [field.name for field in pa.schema(Table(uri + "0").snapshot().schema).field("st").type]
    assert names == ["a", "b", "n", "c"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("ab", [None, None, None]),
        ("ba", [None, None, None]),
        ("abc", [None, None, None]),
        ("a", [{"a": None, "b": 6}, None, {"a": None, "b": None}]),
        ("ac", [{"a": None, "b": 6, "c": None}, None, {"a": None, "b": None, "c": None}]),
        ("c", [{"a": 5, "b": 6, "c": None}, None, {"a": None, "b": None, "c": None}]),
    ],
)
def test_a_struct_of_the_source_that_is_null_keeps_the_fields_that_it_lacks(
    uri: str, fields: str, expected: list[Any]
) -> None:
    data_type = pa.struct([(name, pa.int32()) for name in fields])
    found = merged(uri, rows(OF_AB, AB), rows([None] * 4, data_type, 2), upsert)
    first = {"a": 1, "b": 2} | ({"c": None} if "c" in fields else {})
    assert found == [first, *expected, None]


def test_an_assigned_struct_has_null_for_the_fields_that_it_lacks(uri: str) -> None:
    source = rows([{"b": 60, "c": "new"}], pa.struct({"b": pa.int32(), "c": pa.string()}), 2)
    first, last = {"a": 1, "b": 2, "c": None}, {"a": None, "b": None, "c": None}
    found = merged(uri + "set", rows(OF_AB, AB), source, lambda merge: merge.when_matched_update({"st": "source.st"}))
    assert found == [first, {"a": None, "b": 60, "c": "new"}, None, last]
    # A field that is assigned by its path is added, and nothing else.
    found = merged(
        uri + "path", rows(OF_AB, AB), source, lambda merge: merge.when_matched_update({"st.c": "source.st.c"})
    )
    assert found == [first, {"a": 5, "b": 6, "c": "new"}, None, last]
    inner = rows(
        [{"n": {"q": 80, "r": 90}, "z": 1}],
        pa.struct({"n": pa.struct({"q": pa.int32(), "r": pa.int32()}), "z": pa.int32()}),
        2,
    )
    found = merged(
        uri + "inner",
        rows(OF_NESTED[:2], NESTED),
        inner,
        lambda merge: merge.when_matched_update({"st.n": "source.st.n"}),
    )
    assert found[1] == {"a": 5, "b": 6, "n": {"p": None, "q": 80, "r": 90}}


def test_structs_in_arrays_and_maps_get_null_for_the_fields_that_they_lack(uri: str) -> None:
    given = pa.struct({"b": pa.int32(), "c": pa.int32()})
    target = rows([[{"a": 1, "b": 2}], [{"a": 3, "b": 4}]], pa.list_(AB))
    source = rows([[{"b": 40, "c": 30}], [{"b": 41, "c": 31}, None]], pa.list_(given), 2)
    assert merged(uri + "list", target, source, upsert) == [
        [{"a": 1, "b": 2, "c": None}],
        [{"a": None, "b": 40, "c": 30}],
        [{"a": None, "b": 41, "c": 31}, None],
    ]
    target = rows([[("k", {"a": 1, "b": 2})], [("k", {"a": 3, "b": 4})]], pa.map_(pa.string(), AB))
    source = rows([[("k", {"b": 40, "c": 30})], [("m", {"b": 41, "c": 31})]], pa.map_(pa.string(), given), 2)
    assert merged(uri + "map", target, source, upsert) == [
        [("k", {"a": 1, "b": 2, "c": None})],
        [("k", {"a": None, "b": 40, "c": 30})],
        [("m", {"a": None, "b": 41, "c": 31})],
    ]


def test_missing_fields_are_refused_without_evolution_and_where_null_is(uri: str) -> None:
    source = rows([{"b": 60}, {"b": 61}], pa.struct({"b": pa.int32()}), 4)
    deltic.write(uri, rows(OF_AB, AB))
    for merge in (
        Table(uri).merge(source, ON).when_matched_update_all(),
        Table(uri).merge(source, ON).when_not_matched_insert_all(),
    ):
        with pytest.raises(InvalidInputError, match="cannot be stored in the column `st`"):
            merge.execute()
    strict = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    table = Table(uri + "strict")
    deltic.write(table, rows([{"a": 3, "b": 4}], strict, 4))
    table.merge(source, ON).with_schema_evolution().when_matched_update_all().execute()
    assert table.scan().to_arrow()["st"].to_pylist() == [{"a": 3, "b": 60}]
    with pytest.raises(InvalidInputError, match="`a` is not nullable"):
        table.merge(source, ON).with_schema_evolution().when_not_matched_insert_all().execute()
