"""Shredded variants: written into typed columns, and read back."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import struct
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltic

SHREDS = {"delta.enableVariantShredding": "true"}
VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
MARKED = pa.field("v", VARIANT, metadata={"delta.type": "variant"})
SCHEMA = pa.schema([pa.field("id", pa.int64()), MARKED])


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def names_of(metadata: bytes) -> list[str]:
    """The dictionary of field names, according to Parquet's VariantEncoding.md."""
    width = (metadata[0] >> 6) + 1
    count = number(metadata[1 : 1 + width])
    starts = [number(metadata[at : at + width]) for at in range(1 + width, 1 + width * (count + 2), width)]
    text = metadata[1 + width * (count + 2) :]
    return [text[a:b].decode() for a, b in pairwise(starts)]


def value_of(names: list[str], data: bytes) -> Any:
    """Decode a value, according to Parquet's VariantEncoding.md."""
    kind, header, rest = data[0] & 3, data[0] >> 2, data[1:]
    if kind == 1:
        return rest[:header].decode()
    if kind == 0:
        simple = {0: None, 1: True, 2: False}
        if header in simple:
            return simple[header]
        if header in (3, 4, 5, 6):
            return int.from_bytes(rest[: 1 << (header - 3)], "little", signed=True)
        if header == 7:
            return struct.unpack("<d", rest[:8])[0]
        if header in (8, 9, 10):
            unscaled = int.from_bytes(rest[1 : 1 + (4 << (header - 8))], "little", signed=True)
            return Decimal(unscaled).scaleb(-rest[0])
        if header == 11:
            return dt.date(1970, 1, 1) + dt.timedelta(int.from_bytes(rest[:4], "little", signed=True))
        if header in (12, 13):
            zone = dt.timezone.utc if header == 12 else None
            micros = int.from_bytes(rest[:8], "little", signed=True)
            return dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(microseconds=micros)
        if header == 14:
            return struct.unpack("<f", rest[:4])[0]
        if header in (15, 16):
            found = rest[4 : 4 + number(rest[:4])]
            return found if header == 15 else found.decode()
        raise AssertionError(header)
    offsets, ids = (header & 3) + 1, (header >> 2 & 3) + 1 if kind == 2 else 0
    large = 4 if header >> (4 if kind == 2 else 2) & 1 else 1
    count = number(rest[:large])
    at = [large + i * ids for i in range(count)]
    begin = large + count * ids
    values = rest[begin + (count + 1) * offsets :]
    starts = [number(rest[begin + i * offsets :][:offsets]) for i in range(count)]
    found = [value_of(names, values[start:]) for start in starts]
    return dict(zip([names[number(rest[i : i + ids])] for i in at], found, strict=True)) if kind == 2 else found


def values(table: deltic.Table, column: str = "v") -> dict[int, Any]:
    rows = table.scan().to_arrow().to_pylist()
    decoded = {}
    for row in rows:
        v = row[column]
        decoded[row["id"]] = "NULL" if v is None else value_of(names_of(v["metadata"]), v["value"])
    return decoded


def typed(uri: str, column: str = "v") -> list[pa.DataType | None]:
    """The type of `typed_value` in each file of the newest version, None without it."""
    found = []
    for path in deltic.Table(uri).snapshot().files().read_all().column("path").to_pylist():
        field = pq.read_schema(Path(uri) / path).field(column).type
        at = field.get_field_index("typed_value")
        found.append(field.field(at).type if at >= 0 else None)
    return found


def create(path: Path, *, properties: dict[str, str] | None = None, schema: pa.Schema = SCHEMA) -> str:
    uri = str(path / "t")
    deltic.create(uri, schema, properties=SHREDS if properties is None else properties)
    return uri


def rows(values: list[Any], start: int = 0) -> pa.Table:
    texts = [None if value == "NULL" else json.dumps(value) for value in values]
    return pa.table({"id": pa.array(range(start, start + len(values)), pa.int64()), "v": pa.array(texts, pa.string())})


def numbered(values: list[Any], start: int = 0) -> dict[int, Any]:
    return dict(enumerate(values, start))


def test_fields_become_columns_and_other_values_stay_encoded(tmp_path: Path) -> None:
    uri = create(tmp_path)
    values_ = [{"a": i, "b": {"c": f"text {i}", "d": [i, i + 1]}, "rare" if i == 7 else "e": i / 4} for i in range(30)]
    values_ += ["NULL", None, [], {}, {"a": "no number", "b": 7}, {"a": None, "b": {}}, "x" * 100, [1, "x"], 2**62]
    deltic.write(uri, rows(values_))
    (found,) = typed(uri)
    assert found is not None
    assert [found.field(i).name for i in range(found.num_fields)] == ["a", "b", "e"]
    assert found.field("a").type.field("typed_value").type == pa.int64()
    inner = found.field("b").type.field("typed_value").type
    assert inner.field("c").type.field("typed_value").type == pa.string()
    assert pa.types.is_list(inner.field("d").type.field("typed_value").type)
    assert found.field("e").type.field("typed_value").type == pa.float64()
    assert values(deltic.Table(uri)) == numbered(values_)
    log = (Path(uri) / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (stats,) = (json.loads(action["add"]["stats"]) for action in map(json.loads, log) if "add" in action)
    assert stats["nullCount"] == {"id": 0, "v": 1}
    assert set(stats["minValues"]) == set(stats["maxValues"]) == {"id"}


def test_shredding_needs_the_property_and_the_feature(tmp_path: Path) -> None:
    same = [{"a": i} for i in range(20)]
    for name, properties in {
        "none": {},
        "off": {"delta.enableVariantShredding": "false", "delta.feature.variantShredding": "supported"},
    }.items():
        uri = create(tmp_path / name, properties=properties)
        deltic.write(uri, rows(same))
        assert typed(uri) == [None]
    # With the property but without the feature.
    uri = create(tmp_path / "bare", properties={})
    log = Path(uri) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.enableVariantShredding"] = "true"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for crc in (Path(uri) / "_delta_log").glob("*.crc"):
        crc.unlink()
    deltic.write(uri, rows(same))
    assert typed(uri) == [None]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_rows_that_change_and_move_are_shredded(tmp_path: Path, mapping: str) -> None:
    uri = create(
        tmp_path, properties=SHREDS | {"delta.columnMapping.mode": mapping, "delta.enableChangeDataFeed": "true"}
    )
    values_: list[Any] = [{"a": i, "s": "t" * i} for i in range(90)]
    for start in (0, 30, 60):
        deltic.write(uri, rows(values_[start : start + 30], start))
    table = deltic.Table(uri)
    table.delete("id % 10 = 3")
    table.optimize()
    table = deltic.Table(uri)
    expected = {i: value for i, value in enumerate(values_) if i % 10 != 3}
    assert values(table) == expected
    for path in table.snapshot().files().read_all().column("path").to_pylist():
        parquet = pq.ParquetFile(Path(uri) / path)
        (variant,) = [field.type for field in parquet.schema_arrow if pa.types.is_struct(field.type)]
        assert variant.get_field_index("typed_value") >= 0
        # Only columns of the schema have field ids.
        ids = [int(found) for found in re.findall(r"field_id=(-?\d+)", str(parquet.schema))]
        assert sorted(number for number in ids if number > 0) == ([1, 2] if mapping == "name" else [])


def test_a_variant_in_a_struct_is_shredded_and_one_in_a_list_is_not(tmp_path: Path) -> None:
    inner = pa.struct([MARKED.with_name("w"), pa.field("n", pa.int64())])
    lists = pa.list_(MARKED.with_name("element"))
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("s", inner), pa.field("l", lists)])
    uri = create(tmp_path, schema=schema)
    texts = [{"w": json.dumps({"a": i}), "n": i} if i % 3 else None for i in range(30)]
    source = pa.table(
        {
            "id": pa.array(range(30), pa.int64()),
            "s": pa.array(texts, pa.struct([("w", pa.string()), ("n", pa.int64())])),
            "l": pa.array([['{"a": 1}']] * 30, pa.list_(pa.string())),
        }
    )
    deltic.write(uri, source)
    (path,) = deltic.Table(uri).snapshot().files().read_all().column("path").to_pylist()
    file = pq.read_schema(Path(uri) / path)
    assert file.field("s").type.field("w").type.get_field_index("typed_value") >= 0
    assert file.field("l").type.value_type.get_field_index("typed_value") == -1
    for row in deltic.Table(uri).scan().to_arrow().to_pylist():
        assert (row["s"] is None) == (row["id"] % 3 == 0)
        if row["s"]:
            w = row["s"]["w"]
            assert value_of(names_of(w["metadata"]), w["value"]) == {"a": row["id"]}


def test_column_options_apply_to_parts_that_support_them(tmp_path: Path) -> None:
    schema = pa.schema([MARKED, pa.field("id", pa.int64())])
    uri = create(tmp_path, schema=schema)
    same = [{"a": i, "b": i % 2 == 0, "c": "text"} for i in range(50)]
    options = {"v": {"compression": "zstd", "encoding": "delta_byte_array", "bloom_filter": True}}
    deltic.write(uri, rows(same), column_options=options, sort_by=["id"])
    (path,) = deltic.Table(uri).snapshot().files().read_all().column("path").to_pylist()
    group = pq.read_metadata(Path(uri) / path).row_group(0)
    leaves = {group.column(i).path_in_schema: i for i in range(group.num_columns)}
    assert len(leaves) > 6
    assert all(group.column(i).compression == "ZSTD" for name, i in leaves.items() if name.startswith("v."))
    assert [column.column_index for column in group.sorting_columns] == [leaves["id"]]
    assert values(deltic.Table(uri)) == numbered(same)


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kinds = 8 if depth < 4 else 6
    match rng.randrange(kinds):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice([0, 1, -1, 127, 128, 2**31, -(2**63), 2**63 - 1, rng.randrange(-(2**40), 2**40)])
        case 3:
            return rng.choice([0.5, -0.0, 1e300, 5e-324, rng.random()])
        case 4 | 5:
            return rng.choice(["", "ü", "short", "x" * 63, "x" * 64, "y" * 200, "\x00", "2020-01-01"])
        case 6:
            return [random_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 5]))]
    names = ["a", "b", "A", "", "with.dot", "value", "typed_value", "metadata", "element", "ü", "n" * 200, "list"]
    return {name: random_value(rng, depth + 1) for name in rng.sample(names, rng.randrange(6))}


@pytest.mark.parametrize("seed", range(25))
def test_any_json_comes_back(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    uri = create(tmp_path)
    made: list[Any] = []
    for _ in range(3):
        # A shape shared by most rows of the file, and random ones.
        shape = random_value(rng)
        part = [shape if rng.random() < 0.6 else random_value(rng) for _ in range(rng.choice([1, 20, 150]))]
        part = [value if rng.random() < 0.95 else "NULL" for value in part]
        deltic.write(uri, rows(part, len(made)), row_group_rows=rng.choice([7, 1000]))
        made += part
    table = deltic.Table(uri)
    assert same(values(table), numbered(made))
    table.optimize()
    assert same(values(deltic.Table(uri)), numbered(made))


def same(found: Any, expected: Any) -> bool:
    """Equality that distinguishes 1, 1.0 and True."""
    return repr(sorted_(found)) == repr(sorted_(expected))


def sorted_(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((repr(name), sorted_(inner)) for name, inner in value.items())
    return [sorted_(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_hostile_values_are_written_and_read(tmp_path: Path) -> None:
    uri = create(tmp_path)
    deep: Any = 1
    for i in range(60):
        deep = [deep] if i % 2 else {"d": deep}
    many = [{f"key {row} {i}": i for i in range(400)} for row in range(20)]
    wide = {f"k{i}": i for i in range(2000)}
    turning: list[Any] = (
        [{"a": i} for i in range(1500)] + [{"a": str(i)} for i in range(1500)] + [[i] for i in range(500)]
    )
    parts = [[deep] * 20, many, [wide] * 12, turning, [{}] * 20, [[]] * 20, [None] * 20, ["NULL"] * 20, [{"": 1}] * 12]
    parts.append([wide] * 5 + [{}] * 20_000)
    parts.append([[1, 2], [None] * 200_000])
    made: list[Any] = []
    for part in parts:
        deltic.write(uri, rows(part, len(made)))
        made += part
    assert values(deltic.Table(uri)) == numbered(made)
    for found in typed(uri):
        assert found is None or leaves_of(found) <= 3 * 300, found


def leaves_of(data_type: pa.DataType) -> int:
    if pa.types.is_list(data_type):
        return leaves_of(data_type.value_type)
    if pa.types.is_struct(data_type):
        return sum(leaves_of(data_type.field(i).type) for i in range(data_type.num_fields))
    return 1


def int64(value: int) -> bytes:
    return b"\x18" + value.to_bytes(8, "little", signed=True)


def in_an_object(value: bytes) -> tuple[bytes, bytes]:
    return b"\x11\x01\x00\x01a", b"\x02\x01\x00\x00" + bytes([len(value)]) + value


def in_an_array(value: bytes) -> tuple[bytes, bytes]:
    return b"\x01\x00\x00", b"\x03\x01\x00" + bytes([len(value)]) + value


def alone(value: bytes) -> tuple[bytes, bytes]:
    return b"\x01\x00\x00", value


@pytest.mark.parametrize("place", [alone, in_an_object, in_an_array])
@pytest.mark.parametrize("scale", [0, 1, 9])
def test_integers_among_decimals_keep_their_value(tmp_path: Path, place: Any, scale: int) -> None:
    uri = create(tmp_path)
    decimal = b"\x20" + bytes([scale]) + (5).to_bytes(4, "little")
    wide = [2**31 - 1, 2**31, 2**32 + 5, -(2**40) + 7, 2**63 - 1, -(2**63), 1_999_999_999]
    given = [place(value) for value in [decimal] * 40 + [int64(number) for number in wide]]
    structs = [{"id": i, "v": {"metadata": metadata, "value": value}} for i, (metadata, value) in enumerate(given)]
    deltic.write(uri, pa.Table.from_pylist(structs, schema=SCHEMA))
    assert typed(uri) != [None]
    found = values(deltic.Table(uri))
    expected = [value_of(names_of(metadata), value) for metadata, value in given]
    assert [found[i] for i in range(len(given))] == expected


def test_elements_are_required_groups(tmp_path: Path) -> None:
    uri = create(tmp_path)
    deltic.write(uri, rows([[1, 2], [3], []]))
    (path,) = Path(uri).glob("*.parquet")
    assert "required group field_id=-1 element" in str(pq.ParquetFile(path).schema)
    assert values(deltic.Table(uri)) == numbered([[1, 2], [3], []])


def primitives() -> list[bytes]:
    """Values of each primitive type, including values that other types cannot hold."""

    def integer(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little", signed=True)

    def decimal(value: int, scale: int, size: int) -> bytes:
        return bytes([{4: 0x20, 8: 0x24, 16: 0x28}[size], scale]) + integer(value, size)

    found = [b"\x00", b"\x04", b"\x08", b"\x0c\x01"]
    found += [int64(value) for value in (2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63))]
    found += [b"\x1c" + struct.pack("<d", value) for value in (0.1, -0.0, 1e300, 2.0**53)]
    found += [b"\x38" + struct.pack("<f", value) for value in (0.1, -0.0, 2.0**24)]
    found += [decimal(1, 1, 4), decimal(100, 2, 4), decimal(10**9 - 1, 0, 4), decimal(10**18 - 1, 18, 8)]
    found += [decimal(10**38 - 1, 0, 16), decimal(10**38 - 1, 38, 16), decimal(1 - 10**38, 19, 16)]
    found += [b"\x2c" + integer(1, 4), b"\x30" + integer(1, 8), b"\x34" + integer(86_400_000_000, 8)]
    found += [b"\x3c" + integer(len(value), 4) + value for value in (b"1", b"\xff")]
    return found + [b"\x40" + integer(len(text), 4) + text.encode() for text in ("1", "true", "1970-01-02")]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(primitives())))
def test_each_type_is_kept_in_a_column_typed_for_another(tmp_path: Path, number: int) -> None:
    uri = create(tmp_path)
    given = [primitives()[number]] * 1000 + primitives()  # types are inferred from the first thousand
    structs = [{"id": i, "v": {"metadata": b"\x01\x00\x00", "value": value}} for i, value in enumerate(given)]
    deltic.write(uri, pa.Table.from_pylist(structs, schema=SCHEMA))
    assert typed(uri) != [None] or given[0] == b"\x00"
    found = values(deltic.Table(uri))
    for i, value in enumerate(given):
        expected = value_of([], value)
        assert found[i] == expected
        assert isinstance(found[i], bool) == isinstance(expected, bool)
        assert expected != 0 or isinstance(expected, bool) or str(found[i]) == str(expected)
