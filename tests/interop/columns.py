"""Random Arrow columns of every type and layout, with their values as Python objects.

Dates and timestamps are integers in their unit, since Python's dates end with the year 9999. A `Kind` describes a
column or a nested element: how to generate values, how to build an array from them, and what a table must return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

DAYS = 719_162
"""Days from 0001-01-01 to 1970-01-01."""
LAST_DAY = 2_932_896
PER_DAY = 86_400_000_000
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
EXACT = Context(prec=80)


@dataclass(frozen=True)
class Kind:
    """An Arrow type and a generator of its values."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    zero: Any
    """A value for slots that are not visible, as below a null."""
    build: Callable[[Sequence[Any]], pa.Array]
    kept: Callable[[Any], Any] = lambda value: value
    """Converts a written value to the value that is read back."""
    nullable: bool = True
    metadata: dict[str, str] | None = None

    def some(self) -> st.SearchStrategy[Any]:
        """A strategy for values, including nulls if the type is nullable."""
        return st.one_of(st.none(), self.values, self.values) if self.nullable else self.values

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.type, self.nullable, self.metadata)

    def keep(self, value: Any) -> Any:
        return None if value is None else self.kept(value)


def plain(kind: pa.DataType, values: st.SearchStrategy[Any], zero: Any, **more: Any) -> Kind:
    return Kind(kind, values, zero, lambda column: pa.array(column, kind), **more)


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.sampled_from([least, most, 0, 1]), st.integers(least, most))


def spelled(value: float) -> str:
    """A float as a string: NaN equals NaN, and -0.0 differs from 0.0."""
    return "NaN" if math.isnan(value) else repr(value)


def floating(kind: pa.DataType, width: int) -> Kind:
    edges = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5])
    return plain(kind, st.one_of(edges, st.floats(width=width)), 0.0, kept=spelled)


@st.composite
def strings(draw: st.DrawFn) -> str:
    """Short strings, and long ones with multi-byte characters at the truncation point of statistics."""
    some = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    if draw(st.booleans()):
        return draw(some)
    head = draw(st.sampled_from(["a", "\U0010ffff", "é", "\x7f", "\uffff"])) * draw(st.integers(29, 37))
    return head + draw(st.sampled_from(["", "\U0010ffff", "é\U0010ffff", "日本", "z"])) + draw(some)


blobs = st.one_of(st.binary(max_size=4), st.integers(30, 40).map(lambda size: b"\xff" * size))


def numbered(kind: pa.DataType, storage: pa.DataType, values: st.SearchStrategy[int], **more: Any) -> Kind:
    """A type that is stored as an integer."""
    return Kind(kind, values, 0, lambda column: pa.array(column, storage).cast(kind), **more)


def days() -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([-DAYS, LAST_DAY, 0, -1, -141_428]), st.integers(-DAYS, LAST_DAY))


def timestamps(unit: str, zone: str | None) -> Kind:
    per = PER_SECOND[unit]
    first, last = -DAYS * 86_400 * per, (LAST_DAY + 1) * 86_400 * per - 1
    if unit == "ns":
        # Whole microseconds. 64 bits of nanoseconds do not cover all of these years.
        first, last = -(2**63) // 1000 + 1, (2**63 - 1) // 1000
        values = st.one_of(st.sampled_from([first, last, 0, -1]), st.integers(first, last)).map(lambda v: v * 1000)
        return numbered(pa.timestamp(unit, zone), pa.int64(), values, kept=lambda v: v // 1000)
    values = st.one_of(st.sampled_from([first, last, 0, -1]), st.integers(first, last))
    return numbered(pa.timestamp(unit, zone), pa.int64(), values, kept=lambda v: v * 1_000_000 // per)


@st.composite
def decimals(draw: st.DrawFn) -> Kind:
    precision = draw(st.sampled_from([1, 9, 10, 18, 19, 38]) | st.integers(1, 38))
    scale = draw(st.sampled_from([0, precision]) | st.integers(0, precision))
    makers = [pa.decimal128, *([pa.decimal32] if precision <= 9 else []), *([pa.decimal64] if precision <= 18 else [])]
    kind = draw(st.sampled_from(makers))(precision, scale)
    most = 10**precision - 1
    digits = st.one_of(st.sampled_from([most, -most, 0, 1]), st.integers(-most, most))
    values = digits.map(lambda value: Decimal(value).scaleb(-scale, EXACT))
    return plain(kind, values, Decimal(0), kept=lambda value: value.quantize(Decimal(1).scaleb(-scale), context=EXACT))


def extension(name: str, storage: Kind) -> Kind:
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": ""}
    return Kind(storage.type, storage.values, storage.zero, storage.build, storage.kept, metadata=metadata)


def leaves() -> st.SearchStrategy[Kind]:
    wide = st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])
    raw = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])
    zone = st.sampled_from([None, "UTC", "Europe/Prague", "+05:30"])
    integers = [
        *(plain(kind, whole(bits), 0) for kind, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32))),
        plain(pa.int64(), whole(64), 0),
        *(plain(kind, whole(n, False), 0) for kind, n in ((pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32))),
    ]
    date64 = numbered(pa.date64(), pa.int64(), days().map(lambda d: d * 86_400_000), kept=lambda v: v // 86_400_000)
    return st.one_of(
        st.sampled_from(integers),
        st.sampled_from([floating(pa.float16(), 16), floating(pa.float32(), 32), floating(pa.float64(), 64)]),
        st.just(plain(pa.bool_(), st.booleans(), False)),
        wide.map(lambda kind: plain(kind, strings(), "")),
        raw.map(lambda kind: plain(kind, blobs, b"")),
        st.just(plain(pa.binary(3), st.binary(min_size=3, max_size=3), b"abc")),
        st.just(numbered(pa.date32(), pa.int32(), days())),
        st.just(date64),
        st.builds(timestamps, st.sampled_from(sorted(PER_SECOND)), zone),
        decimals(),
        st.just(extension("arrow.uuid", plain(pa.binary(16), st.binary(min_size=16, max_size=16), b"a" * 16))),
        st.just(extension("arrow.json", plain(pa.string(), st.sampled_from(['{"a":1}', "[]", "null"]), "1"))),
    )


@st.composite
def encoded(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    """A dictionary with shared, repeated and unused values, or a run-end encoded type."""
    of = draw(inner)
    if draw(st.booleans()):
        kind = pa.dictionary(draw(st.sampled_from([pa.int8(), pa.uint32(), pa.int64()])), of.type)

        def shared(column: Sequence[Any]) -> pa.Array:
            keys = [None if value is None and at % 2 else at for at, value in enumerate(column)]
            values = of.build([*column, of.zero])
            return pa.DictionaryArray.from_arrays(pa.array(keys, kind.index_type), values)

        return Kind(kind, of.values, of.zero, shared, of.kept)
    kind = pa.run_end_encoded(pa.int32(), of.type)

    def runs(column: Sequence[Any]) -> pa.Array:
        ends = [at + 1 for at in range(len(column)) if at + 1 == len(column) or column[at] is not column[at + 1]]
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), of.build([column[e - 1] for e in ends]))

    return Kind(kind, of.values, of.zero, runs, of.kept)


def with_nullability(of: Kind, nullable: bool) -> Kind:
    return Kind(of.type, of.values, of.zero, of.build, of.kept, nullable, of.metadata)


def mask(column: Sequence[Any]) -> pa.Array | None:
    return pa.array([value is None for value in column], pa.bool_()) if None in column else None


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    of = with_nullability(draw(inner), draw(st.booleans()))
    element = of.field(draw(st.sampled_from(["item", "element", "x"])))
    maker = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view]))
    fixed = draw(st.sampled_from([None, None, None, 0, 2]))
    kind = maker(element) if fixed is None else pa.list_(element, fixed)
    sizes = (0, 3) if fixed is None else (fixed, fixed)
    values = st.lists(of.some(), min_size=sizes[0], max_size=sizes[1])

    def build(column: Sequence[Any]) -> pa.Array:
        # Null lists have elements, too.
        hidden = [of.zero] * (1 if fixed is None else fixed)
        shown = [hidden if value is None else value for value in column]
        elements = of.build([item for value in shown for item in value])
        if fixed == 0:
            # `from_arrays` of pyarrow divides by the list size: a size of 0 crashes the process.
            return pa.array([None if value is None else [] for value in column], kind)
        if fixed is not None:
            return pa.FixedSizeListArray.from_arrays(elements, type=kind, mask=mask(column))
        offsets = [0]
        for value in shown:
            offsets.append(offsets[-1] + len(value))
        number = pa.int64() if maker in (pa.large_list, pa.large_list_view) else pa.int32()
        if maker in (pa.list_view, pa.large_list_view):
            array = pa.ListViewArray if maker is pa.list_view else pa.LargeListViewArray
            parts = (pa.array(offsets[:-1], number), pa.array([len(value) for value in shown], number), elements)
        else:
            array = pa.ListArray if maker is pa.list_ else pa.LargeListArray
            parts = (pa.array(offsets, number), elements)
        return array.from_arrays(*parts, type=kind, mask=mask(column))

    return Kind(kind, values, [of.zero] * sizes[0], build, lambda value: [of.keep(item) for item in value])


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    names = draw(st.lists(st.sampled_from(["x", "Y", "é", "a.b", "0"]), min_size=1, max_size=3, unique=True))
    parts = [with_nullability(draw(inner), draw(st.booleans())) for _ in names]
    fields = [part.field(name) for name, part in zip(names, parts, strict=True)]

    def build(column: Sequence[Any]) -> pa.Array:
        def of(at: int, part: Kind) -> list[Any]:
            return [part.zero if value is None else value[at] for value in column]

        children = [part.build(of(at, part)) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask(column))

    def kept(value: tuple[Any, ...]) -> dict[str, Any]:
        return {name: part.keep(item) for name, part, item in zip(names, parts, value, strict=True)}

    values = st.tuples(*(part.some() for part in parts))
    return Kind(pa.struct(fields), values, tuple(part.zero for part in parts), build, kept)


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    key = draw(st.sampled_from([plain(pa.string(), strings(), ""), plain(pa.int32(), whole(32), 0)]))
    of = with_nullability(draw(inner), draw(st.booleans()))
    kind = pa.map_(key.type, of.field("value"))
    values = st.lists(st.tuples(key.values, of.some()), max_size=3, unique_by=lambda pair: pair[0])

    def build(column: Sequence[Any]) -> pa.Array:
        shown = [[] if value is None else value for value in column]
        offsets = [0]
        for value in shown:
            offsets.append(offsets[-1] + len(value))
        keys = key.build([k for value in shown for k, _ in value])
        items = of.build([v for value in shown for _, v in value])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=mask(column))

    return Kind(kind, values, [], build, lambda value: [(key.keep(k), of.keep(v)) for k, v in value])


def kinds() -> st.SearchStrategy[Kind]:
    """Every type that a table can store."""
    some = st.one_of(leaves(), leaves(), encoded(leaves()))
    nested = st.recursive(some, lambda inner: st.one_of(lists(inner), structs(inner), maps(inner)), max_leaves=4)
    return st.one_of(leaves(), some, nested, nested)


def read(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column, in the form that `Kind.kept` returns."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in read(chunk)]
    kind = array.type
    valid = array.is_valid().to_pylist()
    if isinstance(kind, pa.BaseExtensionType):
        return read(array.storage)
    if pa.types.is_dictionary(kind):
        return read(array.dictionary_decode())
    if pa.types.is_struct(kind):
        names = [kind.field(at).name for at in range(kind.num_fields)]
        columns = [read(array.field(at)) for at in range(kind.num_fields)]
        rows = (
            [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if columns else [{}] * len(array)
        )
        return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]
    if pa.types.is_map(kind):
        pairs = list(zip(read(array.keys), read(array.items), strict=True))
        return _cut(array.offsets.to_pylist(), pairs, valid)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _cut(array.offsets.to_pylist(), read(array.values), valid)
    if pa.types.is_floating(kind):
        return [None if value is None else spelled(value) for value in array.to_pylist()]
    if pa.types.is_date(kind):
        return list(array.cast(pa.int32() if kind == pa.date32() else pa.int64()).to_pylist())
    if pa.types.is_timestamp(kind):
        return list(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist())
    return list(array.to_pylist())


def _cut(offsets: list[int], items: list[Any], valid: list[bool]) -> list[Any]:
    # `items` are those of the whole array; the offsets of a slice refer to them.
    return [items[offsets[at] : offsets[at + 1]] if is_valid else None for at, is_valid in enumerate(valid)]
