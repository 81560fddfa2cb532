"""Types written as in Delta's DDL, such as `array<struct<x: int, v: variant>>`, as fields of Arrow.

A type that Arrow does not have is marked in the metadata of the field, as the core reads it
(`rust/protocol/src/schema/arrow.rs`): variants and geometries at any depth, the lengths of char and varchar at the
column, as Spark does. PROTOCOL.md: "Primitive Types".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["LENGTHS", "NAMES", "TypeSyntaxError", "field_of_type", "quoted"]

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
NAMES = (
    f"{', '.join(_PRIMITIVES)}, decimal(p,s), char(n), varchar(n), variant, geometry(crs), geography(crs, edges), "
    "array<type>, map<type, type> or struct<name: type>"
)
"""The types, for messages."""

_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
_MARK = "delta.type"
LENGTHS = b"__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key with the type of a column of char or varchar."""
_EDGES = ("spherical", "vincenty", "thomas", "andoyer", "karney")
"""How the points of a geography are joined."""
_DEEPEST = 40
"""As in the core."""


class TypeSyntaxError(Exception):
    """A type that cannot be parsed; the text says why."""


@dataclass(frozen=True)
class _Type:
    arrow: pa.DataType
    text: str
    """In the syntax of Spark."""
    mark: str | None = None
    has_length: bool = False

    def field(self, name: str, nullable: bool = True, metadata: Mapping[str, str] | None = None) -> pa.Field:
        marked = {**(metadata or {}), **({_MARK: self.mark} if self.mark else {})}
        return pa.field(name, self.arrow, nullable, marked or None)


def field_of_type(name: str, text: str) -> pa.Field:
    """A nullable column of a type.

    Raises `TypeSyntaxError` for anything that is not a type.
    """
    parser = _Parser(text)
    found = parser.parse(0)
    parser.skip_space()
    if parser.at < len(text):
        raise TypeSyntaxError(f"{text[parser.at :]!r} follows a type")
    return found.field(name, metadata={LENGTHS.decode(): found.text} if found.has_length else None)


@dataclass
class _Parser:
    text: str
    at: int = field(default=0)

    def skip_space(self) -> None:
        self.take(r"\s*")

    def take(self, pattern: str) -> str | None:
        found = re.compile(pattern, re.IGNORECASE).match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def symbol(self, symbol: str) -> bool:
        self.skip_space()
        return self.take(re.escape(symbol)) is not None

    def expect(self, symbol: str) -> None:
        if not self.symbol(symbol):
            rest = self.text[self.at :]
            raise TypeSyntaxError(f"{symbol!r} is missing {f'before {rest!r}' if rest else 'at its end'}")

    def parse(self, depth: int) -> _Type:
        if depth > _DEEPEST:
            raise TypeSyntaxError(f"it nests deeper than {_DEEPEST} levels")
        self.skip_space()
        word = (self.take(r"\w+") or "").lower()
        if word in _PRIMITIVES:
            return _Type(_PRIMITIVES[word], word)
        if word == "variant":
            return _Type(_VARIANT, word, word)
        if word == "array":
            return self.array(depth + 1)
        if word == "map":
            return self.map(depth + 1)
        if word == "struct":
            return self.struct(depth + 1)
        if word == "decimal":
            return _decimal(self.arguments() or "10,0")
        if word in ("char", "varchar"):
            return _string(word, self.arguments())
        if word in ("geometry", "geography"):
            return _geometry(word, self.arguments())
        if word == "interval":
            raise TypeSyntaxError("deltic writes no intervals: store months as int, or microseconds as long")
        raise TypeSyntaxError(f"{word!r} is not a type" if word else "a type is missing")

    def arguments(self) -> str:
        """What is between parentheses; nothing without them."""
        if not self.symbol("("):
            return ""
        found = self.take(r"[^()<>]*") or ""
        self.expect(")")
        return found.strip()

    def array(self, depth: int) -> _Type:
        self.expect("<")
        element = self.parse(depth)
        self.expect(">")
        arrow = pa.list_(element.field("element"))
        return _Type(arrow, f"array<{element.text}>", has_length=element.has_length)

    def map(self, depth: int) -> _Type:
        self.expect("<")
        key = self.parse(depth)
        self.expect(",")
        value = self.parse(depth)
        self.expect(">")
        arrow = pa.map_(key.field("key", False), value.field("value"))
        return _Type(arrow, f"map<{key.text},{value.text}>", has_length=key.has_length or value.has_length)

    def struct(self, depth: int) -> _Type:
        self.expect("<")
        fields, texts, has_length = [], [], False
        while True:
            name = self.name()
            self.symbol(":")
            inner = self.parse(depth)
            nullable = self.take(r"\s*\bNOT\s+NULL\b") is None
            comment = self.comment()
            fields.append(inner.field(name, nullable, None if comment is None else {"comment": comment}))
            texts.append(f"{quoted(name)}:{inner.text}")
            has_length |= inner.has_length
            if not self.symbol(","):
                break
        self.expect(">")
        return _Type(pa.struct(fields), f"struct<{','.join(texts)}>", has_length=has_length)

    def name(self) -> str:
        self.skip_space()
        if (quoted := self.take(r"`(?:[^`]|``)+`")) is not None:
            return quoted[1:-1].replace("``", "`")
        name = self.take(r"\w+")
        if name is None:
            raise TypeSyntaxError("a field of a struct has no name, or one that needs back-ticks")
        return name

    def comment(self) -> str | None:
        if self.take(r"\s*\bCOMMENT\b\s*") is None:
            return None
        text = self.take(r"'(?:[^'\\]|''|\\['\\])*'")
        if text is None:
            raise TypeSyntaxError(
                "COMMENT needs a string in single quotes, with no escapes but those of a quote and a backslash"
            )
        return re.sub(r"\\(.)|''", lambda found: found[1] or "'", text[1:-1])


def quoted(name: str) -> str:
    """A column's name in SQL, in back-ticks if it needs them."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _decimal(arguments: str) -> _Type:
    digits = re.fullmatch(r"(\d{1,2})(?:\s*,\s*(\d{1,2}))?", arguments, re.ASCII)
    if digits is not None:
        precision, scale = int(digits[1]), int(digits[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return _Type(pa.decimal128(precision, scale), f"decimal({precision},{scale})")
    raise TypeSyntaxError(f"decimal({arguments}): the precision is 1 to 38, and the scale 0 to the precision")


def _string(kind: str, arguments: str) -> _Type:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", arguments, re.ASCII):
        raise TypeSyntaxError(f"{kind} needs a length, as in {kind}(10)")
    return _Type(pa.string(), f"{kind}({int(arguments)})", has_length=True)


def _geometry(kind: str, arguments: str) -> _Type:
    _crs, comma, edges = arguments.rpartition(",")
    if kind == "geography" and comma and edges.strip() not in _EDGES:
        raise TypeSyntaxError(
            f"{edges.strip()!r} is not an edge interpolation algorithm; use one of {', '.join(_EDGES)}"
        )
    text = f"{kind}({arguments})" if arguments else kind
    return _Type(pa.binary(), text, text)
