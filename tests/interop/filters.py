"""Random filters that mean the same in Spark and in deltic, generated from a table's schema and values.

A filter has two spellings: only the quoting of strings and the name of NaN differ. Not generated are cases in which
Spark differs: a double literal compared with an integer or a decimal (deltic compares exactly, Spark casts to double),
decimal literals that are too long for Spark to widen a column to, and integers beyond 64 bits (in Spark 4.2
`n < 9223372036854775808` is TRUE where `n` is null).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa

EPOCH = datetime(1970, 1, 1)
LAST = (datetime.max - EPOCH) // timedelta(microseconds=1)
FIRST = (datetime.min - EPOCH) // timedelta(microseconds=1)
EXACT = Context(prec=100)
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">=", "<=>", "=="]
SIZES = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


class Text(NamedTuple):
    """A filter, or a part of one, in both spellings."""

    ours: str
    theirs: str


@dataclass
class Leaf:
    """A column or a struct field, with values that occur in it."""

    path: tuple[str, ...]
    type: pa.DataType
    values: list[Any]

    def name(self) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.path)


def leaves(table: pa.Table, opaque: frozenset[str] = frozenset()) -> list[Leaf]:
    """All columns and fields that a filter can name. Of `opaque` columns it tests only whether they are null."""
    found = []

    def walk(path: tuple[str, ...], array: pa.Array) -> None:
        kind = pa.null() if path[0] in opaque else array.type
        values = [value for value in array.to_pylist() if value is not None] if comparable(kind) else []
        found.append(Leaf(path, kind, values))
        if pa.types.is_struct(kind):
            for index in range(kind.num_fields):
                walk((*path, kind.field(index).name), array.field(index))

    for name in table.schema.names:
        walk((name,), table.column(name).combine_chunks())
    return found


def comparable(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def both(text: str) -> Text:
    return Text(text, text)


def quoted(text: str) -> Text:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return Text("'" + text.replace("'", "''") + "'", f"'{escaped}'")


def floating(value: float, single: bool) -> Text:
    if not math.isfinite(value):
        spelled = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        kind = "FLOAT" if single else "DOUBLE"
        return Text(f"{kind} '{spelled}'", f"{kind}('{spelled}')")
    text = repr(value)
    return both(text if "e" in text else text + "e0")


def moment(value: int, kind: pa.DataType, rng: random.Random) -> Text:
    """Microseconds since 1970 as a timestamp literal, with and without an offset if the type has a zone."""
    at = EPOCH + timedelta(microseconds=min(max(value, FIRST), LAST))
    if kind.tz is None:
        return both(f"TIMESTAMP_NTZ '{at.isoformat(' ', 'microseconds')}'")
    offset = rng.choice(["", "Z", "+02:00", "-07:30"])
    if len(offset) > 1 and datetime.min + timedelta(1) < at < datetime.max - timedelta(1):
        hours, minutes = int(offset[:3]), int(offset[4:])
        at += timedelta(hours=hours, minutes=minutes if hours > 0 else -minutes)
    else:
        offset = offset[:1] if offset == "Z" else ""
    return both(f"TIMESTAMP '{at.isoformat(' ', 'microseconds')}{offset}'")


def micros(value: datetime) -> int:
    naive = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return (naive - EPOCH) // timedelta(microseconds=1)


class Filters:
    """A generator of filters over one table, deterministic by its seed."""

    def __init__(self, table: pa.Table, seed: str, opaque: frozenset[str] = frozenset()) -> None:
        self.rng = random.Random(seed)
        self.leaves = leaves(table, opaque)
        self.comparable = [leaf for leaf in self.leaves if comparable(leaf.type)]

    def make(self, count: int) -> list[Text]:
        return [self.filter(self.rng.choice((0, 0, 1, 1, 2, 3))) for _ in range(count)]

    def filter(self, depth: int) -> Text:
        if depth == 0 or self.rng.random() < 0.1:
            return self.condition()
        kind = self.rng.randrange(8)
        if kind < 2:
            inner = self.filter(depth - 1)
            return Text(f"NOT ({inner.ours})", f"NOT ({inner.theirs})")
        word = " AND " if kind < 5 else " OR "
        terms = [self.filter(depth - 1) for _ in range(self.rng.randint(2, 3))]
        return Text(word.join(f"({term.ours})" for term in terms), word.join(f"({term.theirs})" for term in terms))

    def condition(self) -> Text:
        rng = self.rng
        kind = rng.randrange(14)
        if kind < 2 or not self.comparable:
            return both(f"{rng.choice(self.leaves).name()} IS {rng.choice(['', 'NOT '])}NULL")
        leaf = rng.choice(self.comparable)
        name = leaf.name()
        if pa.types.is_boolean(leaf.type) and kind < 5:
            return both(name)
        if pa.types.is_string(leaf.type) and kind < 6:
            return self.like(leaf)
        if kind < 8:
            items = [self.literal(leaf) for _ in range(rng.randint(1, 6))]
            if rng.random() < 0.2:
                items.append(both("NULL"))
            word = rng.choice(["IN", "IN", "NOT IN"])
            spelled = [", ".join(texts) for texts in zip(*items, strict=True)]
            return Text(*(f"{name} {word} ({items})" for items in spelled))
        if kind == 8:
            low, high = self.literal(leaf), self.literal(leaf)
            word = rng.choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"])
            return Text(*(f"{name} {word} {a} AND {b}" for a, b in zip(low, high, strict=True)))
        if kind == 9:
            alike = [other for other in self.comparable if other.type == leaf.type and other is not leaf]
            if alike:
                return both(f"{name} {rng.choice(COMPARISONS)} {rng.choice(alike).name()}")
        literal, op = self.literal(leaf), rng.choice(COMPARISONS)
        if rng.random() < 0.15:
            return Text(*(f"{text} {op} {name}" for text in literal))
        return Text(*(f"{name} {op} {text}" for text in literal))

    def like(self, leaf: Leaf) -> Text:
        value = self.rng.choice(leaf.values) if leaf.values else "a"
        plain = value[: self.rng.randint(0, min(len(value), 40))]
        escaped = "".join("!" + char if char in "%_!" else char for char in plain)
        before, after = self.rng.choice([("", "%"), ("", "%"), ("", "%"), ("%", ""), ("%", "%"), ("", "_"), ("", "")])
        pattern = quoted(before + escaped + after)
        word = self.rng.choice(["LIKE", "LIKE", "NOT LIKE"])
        return Text(*(f"{leaf.name()} {word} {text} ESCAPE '!'" for text in pattern))

    def literal(self, leaf: Leaf) -> Text:
        """A value of the column, one close to it, an extreme of its type, or a value of a comparable type."""
        rng = self.rng
        if rng.random() < 0.02:
            return both("NULL")
        near = rng.choice(leaf.values) if leaf.values and rng.random() < 0.85 else None
        if leaf.values and near is not None and rng.random() < 0.25:
            ordered = [value for value in leaf.values if value == value]
            near = rng.choice([min, max])(ordered) if ordered else near
        return self.spell(leaf.type, near)

    def spell(self, kind: pa.DataType, near: Any) -> Text:
        rng = self.rng
        spellers: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Any], Text]]] = [
            (pa.types.is_boolean, lambda _, near: both(str(rng.random() < 0.5 if near is None else near).upper())),
            (pa.types.is_integer, self.whole),
            (pa.types.is_floating, self.float),
            (pa.types.is_decimal, self.decimal),
            (pa.types.is_date, self.date),
            (pa.types.is_timestamp, self.timestamp),
            (pa.types.is_string, self.string),
            (pa.types.is_binary, self.binary),
        ]
        return next(speller for fits, speller in spellers if fits(kind))(kind, near)

    def whole(self, kind: pa.DataType, near: int | None) -> Text:
        rng, bits = self.rng, SIZES[kind]
        if near is None:
            near = rng.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1), 300, 10**12])
        value = min(max(near + rng.choice([0, 0, 0, 1, -1]), -(2**63)), 2**63 - 1)
        return both(f"{value}.5" if rng.random() < 0.08 and abs(value) < 2**53 else str(value))

    def float(self, kind: pa.DataType, near: float | None) -> Text:
        rng, single = self.rng, kind == pa.float32()
        if near is None:
            near = rng.choice(
                [math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324, 1.5, 16777217.0, 0.1, 3.4e38, -1.7e308]
            )
        step = rng.choice([None, None, None, math.inf, -math.inf])
        if step is not None and math.isfinite(near):
            near = math.nextafter(near, step)
            if single and rng.random() < 0.5:
                near = struct.unpack("f", struct.pack("f", near))[0]
        if near.is_integer() and abs(near) < 10**18 and rng.random() < 0.4:
            return both(str(int(near)))
        if math.isfinite(near) and 1e-6 < abs(near) < 1e15 and rng.random() < 0.4:
            return both(repr(near))
        return floating(near, single)

    def decimal(self, kind: pa.DataType, near: Decimal | None) -> Text:
        rng = self.rng
        unit = Decimal(1).scaleb(-kind.scale)
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, EXACT)
        if near is None:
            near = rng.choice([Decimal(0), most, most.copy_negate(), unit, Decimal(1)])
        value = EXACT.add(near, EXACT.multiply(unit, Decimal(rng.choice([0, 0, 0, 1, -1]))))
        text = format(min(max(value, most.copy_negate()), most), "f")
        if kind.precision < 30 and rng.random() < 0.15:
            text += "5" if "." in text else ".5"
        return both(text)

    def date(self, _: pa.DataType, near: date | None) -> Text:
        rng = self.rng
        if near is None:
            near = rng.choice(
                [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1582, 10, 10), date(1969, 12, 31)]
            )
        value = date.fromordinal(min(max(near.toordinal() + rng.choice([0, 0, 0, 1, -1]), 1), date.max.toordinal()))
        kind = rng.randrange(8)
        if kind == 0:
            return both(f"'{value.isoformat()}'")
        if kind == 1:
            return both(f"TIMESTAMP_NTZ '{value.isoformat()} {rng.choice(['00:00:00', '12:30:00.000001'])}'")
        return both(f"DATE '{value.isoformat()}'")

    def timestamp(self, kind: pa.DataType, near: datetime | None) -> Text:
        rng = self.rng
        value = rng.choice([0, -1, FIRST, LAST, 2**31 * 10**6]) if near is None else micros(near)
        value += rng.choice([0, 0, 0, 1, -1, 1000, -1000, 999])
        if rng.random() < 0.1:
            at = EPOCH + timedelta(microseconds=min(max(value, FIRST), LAST))
            return both(f"DATE '{at.date().isoformat()}'")
        return moment(value, kind, rng)

    def string(self, _: pa.DataType, near: str | None) -> Text:
        rng = self.rng
        if near is None:
            near = rng.choice(["", "a", "Z", "\uffff", "\U0010ffff", "~", " ", "é", "null", "NULL", "\\", "'"])
        cut = near[: rng.randint(0, len(near))]
        return quoted(rng.choice([near, near, near, near + "a", near + "\u0001", cut, near[:-1], near.swapcase()]))

    def binary(self, _: pa.DataType, near: bytes | None) -> Text:
        near = self.rng.choice([b"", b"\x00", b"\xff\xff"]) if near is None else near
        value = self.rng.choice([near, near, near + b"\x00", near[:-1]])
        return both(f"X'{value.hex()}'")
