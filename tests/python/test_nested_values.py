"""Expressions choose between nested values, whatever metadata and nullability the fields inside them have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import deltic
from deltic import InvalidInputError, Table

ROWS = [
    {"id": 1, "st": {"a": 1, "b": {"c": "x"}}, "l": [{"a": 1}], "m": {"k": {"a": 1}}, "n": [1]},
    {"id": 2, "st": {"a": 2, "b": None}, "l": [], "m": {}, "n": [2, 3]},
]
NESTED = ["st", "l", "m", "n"]


def schema(a: pa.Field, c: pa.Field, element: pa.Field) -> pa.Schema:
    return pa.schema(
        [
            ("id", pa.int64()),
            ("st", pa.struct([a, pa.field("b", pa.struct([c]))])),
            ("l", pa.list_(pa.struct([a]))),
            ("m", pa.map_(pa.string(), pa.struct([a]))),
            ("n", pa.list_(element)),
        ]
    )


A, C, ELEMENT = pa.field("a", pa.int64()), pa.field("c", pa.string()), pa.field("element", pa.int64())
COMMENT = {"comment": "of a"}


def plain(uri: str) -> None:
    deltic.create(uri, schema(A, C, ELEMENT))


def mapped(uri: str) -> None:
    deltic.create(uri, schema(A, C, ELEMENT), properties={"delta.columnMapping.mode": "name"})


def commented(uri: str) -> None:
    deltic.create(uri, schema(A.with_metadata(COMMENT), C.with_metadata(COMMENT), ELEMENT))


def not_null(uri: str) -> None:
    deltic.create(uri, schema(A.with_nullable(False), C.with_nullable(False), ELEMENT.with_nullable(False)))


def widened(uri: str) -> None:
    narrow = schema(pa.field("a", pa.int32()), C, pa.field("element", pa.int32()))
    deltic.create(uri, narrow, properties={"delta.enableTypeWidening": "true"})
    table = Table(uri)
    for name in ("st.a", "l.element.a", "m.value.a", "n.element"):
        table.alter_column(name, type="long")


KINDS = pytest.mark.parametrize("made", [plain, mapped, commented, not_null, widened])


def filled(uri: str, made: Callable[[str], None]) -> Table:
    made(uri)
    deltic.write(uri, pa.Table.from_pylist(ROWS, schema=schema(A, C, ELEMENT)))
    return Table(uri)


def rows(table: Table) -> list[dict[str, Any]]:
    """The rows, with maps as dicts."""
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    return [{**row, "m": None if row["m"] is None else dict(row["m"])} for row in found]


@KINDS
@pytest.mark.parametrize("column", NESTED)
@pytest.mark.parametrize("value", ["CASE WHEN id = 1 THEN {} END", "if(id = 2, NULL, {})"])
def test_a_nested_value_or_null_is_chosen(uri: str, made: Callable[[str], None], column: str, value: str) -> None:
    table = filled(uri, made)
    chosen = value.format(column)
    assert table.scan(filter=f"{chosen} IS NULL").to_arrow()["id"].to_pylist() == [2]
    assert table.scan(filter=f"coalesce({chosen}, {column}) IS NOT NULL").count() == 2
    table.update({column: chosen})
    assert rows(table) == [ROWS[0], {**ROWS[1], column: None}]


@KINDS
@pytest.mark.parametrize("column", NESTED)
def test_a_merge_chooses_between_the_nested_values_of_both_sides(
    uri: str, made: Callable[[str], None], column: str
) -> None:
    table = filled(uri, made)
    table.update({column: "NULL"}, "id = 2")
    other = {"st": {"a": 7, "b": {"c": "y"}}, "l": [{"a": 7}], "m": {"k": {"a": 7}}, "n": [7]}
    source = [{"id": 1, **other, column: None}, {"id": 2, **other}, {"id": 3, **other}]
    merge = table.merge(pa.Table.from_pylist(source, schema=schema(A, C, ELEMENT)), "s.id = t.id", "s", "t")
    merge = merge.when_matched_update({column: f"coalesce(s.{column}, t.{column})"})
    merge.when_not_matched_insert({"id": "s.id", column: f"CASE WHEN s.id = 3 THEN s.{column} END"}).execute()
    empty = dict.fromkeys(NESTED)
    assert rows(table) == [ROWS[0], {**ROWS[1], column: other[column]}, {**empty, "id": 3, column: other[column]}]


@KINDS
def test_nested_values_get_a_common_type(uri: str, made: Callable[[str], None]) -> None:
    """Of bytes and longs it is long; the names of fields may differ in case."""
    table = filled(uri, made)
    small = schema(pa.field("A", pa.int8()), C, pa.field("element", pa.int8()))
    given = [{"st": {"A": 7, "b": None}, "l": [{"A": 7}, None], "m": {"k": {"A": 7}}, "n": [7]}, dict.fromkeys(NESTED)]
    source = pa.Table.from_pylist([{"id": at + 1, **row} for at, row in enumerate(given)], schema=small)
    merge = table.merge(source, "s.id = t.id", "s", "t")
    merge.when_matched_update({name: f"coalesce(s.{name}, t.{name})" for name in NESTED}).execute()
    first = {"st": {"a": 7, "b": None}, "l": [{"a": 7}, None], "m": {"k": {"a": 7}}, "n": [7]}
    assert rows(table) == [{"id": 1, **first}, ROWS[1]]


def test_fields_of_other_names_have_no_common_type(uri: str) -> None:
    table = filled(uri, plain)
    with pytest.raises(InvalidInputError, match=r"no type holds the values of struct<.*> and struct<"):
        table.scan(filter="coalesce(st, st.b) IS NULL").count()


def test_null_where_a_field_or_an_element_is_not_null_is_refused(uri: str) -> None:
    table = filled(uri, not_null)
    nullable = pa.Table.from_pylist([{"id": 1, "st": {"a": None}, "n": [None]}], schema=schema(A, C, ELEMENT))
    for column, message in (("st", "the field `a` is not nullable"), ("n", "an element would be NULL")):
        merge = table.merge(nullable, "s.id = t.id", "s", "t")
        with pytest.raises(InvalidInputError, match=message):
            merge.when_matched_update({column: f"coalesce(s.{column}, t.{column})"}).execute()
    assert rows(table) == ROWS
