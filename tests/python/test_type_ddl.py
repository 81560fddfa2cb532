"""Types as strings of Delta's DDL, in `deltic.field`: which Arrow fields they are, and which columns a table gets."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from sample import log_actions

import deltic
from deltic.types.names import type_name

VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
LENGTHS = "__CHAR_VARCHAR_TYPE_STRING"


def struct(*fields: object) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


def inner(name: str, kind: object, nullable: bool = True, **metadata: str) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def array(element: object) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key: object, value: object) -> dict[str, object]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


TYPES: list[tuple[str, object, dict[str, str]]] = [
    (" BIGINT ", "long", {}),
    ("decimal", "decimal(10,0)", {}),
    ("Decimal( 5 )", "decimal(5,0)", {}),
    ("decimal(38, 2)", "decimal(38,2)", {}),
    ("variant", "variant", {}),
    ("geometry", "geometry(OGC:CRS84)", {}),
    ("geometry(EPSG:3857)", "geometry(EPSG:3857)", {}),
    ("geography(OGC:CRS84, vincenty)", "geography(OGC:CRS84, vincenty)", {}),
    ("CHAR(3)", "string", {LENGTHS: "char(3)"}),
    ("varchar( 20 )", "string", {LENGTHS: "varchar(20)"}),
    ("array<variant>", array("variant"), {}),
    ("array < geometry(EPSG:3857) >", array("geometry(EPSG:3857)"), {}),
    ("map<string, array<int>>", mapping("string", array("integer")), {}),
    ("array<varchar(3)>", array("string"), {LENGTHS: "array<varchar(3)>"}),
    (
        "struct<a: char(2), `b.c` map<string,varchar(3)>>",
        struct(inner("a", "string"), inner("b.c", mapping("string", "string"))),
        {LENGTHS: "struct<a:char(2),`b.c`:map<string,varchar(3)>>"},
    ),
    (
        "struct<id: bigint NOT NULL COMMENT 'it''s', v variant comment 'any'>",
        struct(inner("id", "long", False, comment="it's"), inner("v", "variant", comment="any")),
        {},
    ),
]


@pytest.mark.parametrize(("text", "kind", "metadata"), TYPES, ids=[text for text, _kind, _metadata in TYPES])
def test_a_table_has_the_type(uri: str, text: str, kind: object, metadata: dict[str, str]) -> None:
    deltic.create(uri, pa.schema([deltic.field("c", text, comment="of mine")]))
    (stored,) = [action["metaData"]["schemaString"] for action in log_actions(uri, 0) if "metaData" in action]
    assert json.loads(stored)["fields"] == [inner("c", kind, comment="of mine", **metadata)]
    deltic.Table(uri).add_columns(deltic.field("d", text))
    added, known = deltic.Table(uri).snapshot().schema.field("d"), deltic.Table(uri).snapshot().schema.field("c")
    assert (added.type, type_name(added)) == (known.type, type_name(known))
    assert (added.metadata or {}).get(LENGTHS.encode()) == (known.metadata or {}).get(LENGTHS.encode())


def test_variants_have_the_form_of_the_core() -> None:
    assert deltic.field("v", "variant").equals(
        pa.field("v", VARIANT, metadata={"delta.type": "variant"}), check_metadata=True
    )
    element = deltic.field("v", "array<variant>").type.value_field
    assert (element.type, element.metadata) == (VARIANT, {b"delta.type": b"variant"})


def test_rows_of_these_columns(uri: str) -> None:
    columns = [deltic.field("g", "geometry"), deltic.field("s", "array<varchar(3)>"), deltic.field("v", "variant")]
    deltic.create(uri, pa.schema(columns))
    # The variant 1 as an int8.
    variant = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}
    row = pa.table({"g": [POINT], "s": [["abc"]], "v": pa.array([variant], VARIANT)})
    deltic.write(uri, row)
    assert deltic.Table(uri).scan().to_arrow().to_pylist() == row.to_pylist()
    with pytest.raises(deltic.InvalidInputError, match=r"`s\.element` is varchar\(3\)"):
        deltic.write(uri, pa.table({"s": [["abcd"]]}))


@pytest.mark.parametrize(("extension", "value"), [("geoarrow.wkb", POINT), ("geoarrow.wkt", "POINT (1 2)")])
def test_new_columns_of_geoarrow_are_refused(uri: str, extension: str, value: object) -> None:
    metadata = {"ARROW:extension:name": extension, "ARROW:extension:metadata": '{"crs": "EPSG:3857"}'}
    column = pa.field("g", pa.array([value]).type, metadata=metadata)
    rows = pa.table([[value]], schema=pa.schema([column]))
    message = f"column `g` has the Arrow extension type `{extension}`, and a new column of it would lose its reference"
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.write(uri, rows)
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.create(uri, rows.schema)
    assert not deltic.Table(uri).exists()
    deltic.write(uri, pa.table({"id": [1]}))
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.write(uri, rows, schema_mode="merge")
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.write(uri, rows, "overwrite", schema_mode="overwrite")
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.Table(uri).add_columns(column)
    assert deltic.Table(uri).snapshot().version == 0
    deltic.write(uri, rows.cast(pa.schema([pa.field("g", column.type)])), schema_mode="merge")
    deltic.write(uri, rows)
    assert deltic.Table(uri).scan(["g"]).to_arrow()["g"].drop_null().to_pylist() == [value, value]


def test_geometries_of_geoarrow_are_written_into_a_column_of_that_type(uri: str) -> None:
    deltic.create(uri, pa.schema([deltic.field("g", "geometry(EPSG:3857)")]))
    metadata = {"ARROW:extension:name": "geoarrow.wkb"}
    column = pa.field("g", pa.binary(), metadata=metadata)
    deltic.write(uri, pa.table([[POINT]], schema=pa.schema([column])))
    copied = uri + "_copied"
    deltic.write(copied, deltic.Table(uri).scan())
    assert type_name(deltic.Table(copied).snapshot().schema.field("g")) == "geometry(EPSG:3857)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty|a type is missing"),
        ("array", "'<' is missing at its end"),
        ("array<int", "'>' is missing at its end"),
        ("array<int>>", "'>' follows a type"),
        ("array<>", "a type is missing"),
        ("map<int>", "',' is missing before '>'"),
        ("struct<>", "a field of a struct has no name"),
        ("struct<a: int b: int>", "'>' is missing before 'b: int>'"),
        ("struct<a: int NOT>", "'>' is missing before 'NOT>'"),
        ("struct<a: int COMMENT x>", "COMMENT needs a string in single quotes"),
        (r"struct<a: int COMMENT 'a\nb'>", "no escapes but those of a quote and a backslash"),
        ("struct<`a: int>", "a field of a struct has no name, or one that needs back-ticks"),
        ("char", r"char needs a length, as in char\(10\)"),
        ("varchar(0)", "varchar needs a length"),
        ("decimal(2,3)", r"decimal\(2,3\): the precision is 1 to 38, and the scale 0 to the precision"),
        ("geography(OGC:CRS84, straight)", "'straight' is not an edge interpolation algorithm; use one of spherical"),
        ("array<void>", "'void' is not a type"),
        ("udt", "'udt' is not a type; write string, .*variant, geometry"),
        ("interval day to second", "'interval day to second' .* deltic writes no intervals: store months as int, or"),
        ("array<struct<x: INTERVAL>>", "deltic writes no intervals: store months as int, or microseconds as long"),
        ("int()", r"'\(\)' follows a type"),
        ("geometry(a", r"'\)' is missing at its end"),
        ("array<" * 100 + "int" + ">" * 100, "nests deeper than 40 levels"),
        ("array<" * 100_000, "nests deeper than 40 levels"),
    ],
)
def test_what_is_not_a_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match=message):
        deltic.field("c", text)


def test_the_length_of_a_column_is_not_changed_silently(uri: str) -> None:
    deltic.create(uri, pa.schema([deltic.field("c", "varchar(3)")]))
    with pytest.raises(deltic.InvalidInputError, match=re.escape("type 'varchar(9)' cannot be set: the length of a")):
        deltic.Table(uri).alter_column("c", type="varchar(9)")
    with pytest.raises(deltic.InvalidInputError, match="an identity column is a long, not string"):
        deltic.field("c", "varchar(3)", identity={})
