"""Sample data with every type, nested types and extreme values; comparison of rows; a count of open files."""

import json
import os
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from log_files import Log

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal", pa.decimal128(10, 2)),
        ("big_decimal", pa.decimal128(38, 10)),
        ("array", pa.list_(pa.field("element", pa.int32()))),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.int32()), ("inner", pa.struct([("name", pa.string())]))])),
        ("array_of_structs", pa.list_(pa.field("element", pa.struct([("k", pa.string()), ("v", pa.int64())])))),
        ("map_of_arrays", pa.map_(pa.int32(), pa.list_(pa.field("element", pa.date32())))),
    ]
)

NTZ = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])


def every_type(rows: int = 4) -> pa.Table:
    """A row of nulls, a row of zeros, a row of extreme values, and ordinary rows."""
    utc = timezone.utc
    nulls = {"id": 0}
    zeros: dict[str, Any] = {
        "id": 1,
        **dict.fromkeys(("byte", "short", "integer", "long"), 0),
        **dict.fromkeys(("float", "double"), 0.0),
        "boolean": False,
        "string": "",
        "binary": b"",
        "date": date(1970, 1, 1),
        "timestamp": datetime(1970, 1, 1, tzinfo=utc),
        **dict.fromkeys(("decimal", "big_decimal"), Decimal(0)),
        **{name: [] for name in ("array", "map", "array_of_structs", "map_of_arrays")},
        "struct": {"x": 0, "inner": None},
    }
    extremes: dict[str, Any] = {
        "id": 2,
        "byte": -128,
        "short": 32767,
        "integer": -(2**31),
        "long": 2**63 - 1,
        "float": float("-inf"),
        "double": 1.7976931348623157e308,
        "boolean": True,
        "string": "žluťoučký kůň 🐎 'quoted' \"twice\" \\ \n",
        "binary": bytes(range(256)),
        "date": date(9999, 12, 31),
        "timestamp": datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=utc),
        "decimal": Decimal("-99999999.99"),
        "big_decimal": Decimal("9999999999999999999999999999.9999999999"),
        "array": [1, None, 3],
        "map": [("a", 1.5), ("b", None)],
        "struct": {"x": None, "inner": {"name": "deep"}},
        "array_of_structs": [{"k": "a", "v": 1}, None, {"k": None, "v": None}],
        "map_of_arrays": [(7, [date(2013, 7, 4), None]), (8, None)],
    }

    def ordinary(i: int) -> dict[str, Any]:
        return {
            **zeros,
            "id": i,
            "byte": i % 100,
            "short": i,
            "integer": i * 1000,
            "long": i * 10**12,
            "float": i / 2,
            "double": i / 4,
            "boolean": i % 2 == 0,
            "string": f"row {i}",
            "binary": str(i).encode(),
            "date": date(2013, 1, 1) + timedelta(days=i % 3650),
            "timestamp": datetime(2013, 1, 1, tzinfo=utc) + timedelta(minutes=i, microseconds=i),
            "decimal": Decimal(i) / 4,
            "big_decimal": Decimal(i) / 8,
            "array": [i, None],
            "map": [("k", float(i))],
            "struct": {"x": i, "inner": {"name": f"n{i}"}},
            "array_of_structs": [{"k": "a", "v": i}],
            "map_of_arrays": [(i, [date(2013, 1, 1)])],
        }

    made = [nulls, zeros, extremes, *(ordinary(i) for i in range(3, rows))]
    return pa.Table.from_pylist(made[:rows], schema=EVERY_TYPE)


def _plain(value: Any) -> Any:
    """A hashable form of a value, compared as in Delta: -0.0 equals 0.0, NaN equals NaN, map entries have no order."""
    if isinstance(value, dict):
        return ("struct", tuple(sorted((key, _plain(item)) for key, item in value.items())))
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return ("map", frozenset((_plain(key), _plain(item)) for key, item in value))
        return ("array", tuple(_plain(item) for item in value))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value


def rows(table: pa.Table) -> Counter[Any]:
    """The rows as a multiset, independent of the order of columns."""
    columns = sorted(table.schema.names)
    values = [table.column(name).to_pylist() for name in columns]
    return Counter(tuple(_plain(value) for value in row) for row in zip(*values, strict=True))


def log_actions(uri: str, version: int) -> list[dict[str, Any]]:
    """The actions of one commit."""
    return Log(uri).read(version)


def adds(uri: str, version: int) -> list[dict[str, Any]]:
    """The add actions of one commit, with `stats` parsed."""
    found = [action["add"] for action in log_actions(uri, version) if "add" in action]
    return [{**add, "stats": json.loads(add["stats"]) if add.get("stats") else None} for add in found]


def open_files(folder: Path) -> int:
    """The number of open file descriptors of this process for files in a folder, including unlinked files."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/")
        except OSError:
            continue
    return found
