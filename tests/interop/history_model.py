"""A model of a table: a list of rows with a schema that changes. Every client must read the same rows.

A row is a dict of values by column key. The key of a column stays when the column is renamed. `IDENTITY` identifies a
row in the model, `CHANGED` is the version of its last change (None until it is committed). The model uses no Delta
client.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]
"""The key of a column, and the keys of the nested fields below it."""

IDENTITY, CHANGED = "#identity", "#changed"

PRIMITIVES: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(14,3)": pa.decimal128(14, 3),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
}
WIDER = {
    "smallint": "int",
    "int": "bigint",
    "float": "double",
    "decimal(10,2)": "decimal(14,3)",
    "date": "timestamp_ntz",
}


@dataclass(frozen=True)
class Column:
    """A column or a struct field. Its type is the name of a primitive type, a tuple of fields, or a `ListOf` those."""

    key: str
    name: str
    type: Type


@dataclass(frozen=True)
class ListOf:
    """An array."""

    element: Type


Type: TypeAlias = "str | tuple[Column, ...] | ListOf"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_type(type: Type) -> str:
    if isinstance(type, ListOf):
        return f"array<{sql_type(type.element)}>"
    if isinstance(type, tuple):
        return f"struct<{', '.join(f'{quoted(one.name)}: {sql_type(one.type)}' for one in type)}>"
    return type


def arrow_type(type: Type) -> pa.DataType:
    if isinstance(type, ListOf):
        return pa.list_(pa.field("element", arrow_type(type.element)))
    if isinstance(type, tuple):
        return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in type])
    return PRIMITIVES[type]


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def named(type: Type, value: Any) -> Any:
    """Replace the keys of fields in a value by their names."""
    if value is None:
        return None
    if isinstance(type, ListOf):
        return [named(type.element, one) for one in value]
    if isinstance(type, tuple):
        return {one.name: named(one.type, value.get(one.key)) for one in type}
    if type == "timestamp_ntz" and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def plain(row: Row, columns: Sequence[Column]) -> Row:
    """A row by column names, as a client reads it."""
    return {column.name: named(column.type, row.get(column.key)) for column in columns}


def table_of(rows: Iterable[Row], columns: Sequence[Column]) -> pa.Table:
    return pa.Table.from_pylist([plain(row, columns) for row in rows], schema=arrow_schema(columns))


def frozen(value: Any) -> Any:
    """A hashable form of a value: NaN equals NaN, -0.0 differs from 0.0, map entries have no order."""
    if isinstance(value, dict):
        return ("struct", *sorted((name, frozen(one)) for name, one in value.items()))
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return ("map", frozenset((frozen(key), frozen(one)) for key, one in value))
        return ("list", *map(frozen, value))
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value


def counted(rows: Iterable[Row]) -> Counter[Any]:
    """Rows as a multiset, independent of the order of columns."""
    return Counter(tuple(sorted((name, frozen(value)) for name, value in row.items())) for row in rows)


PARTS = ["a", "b é", "50%/x", "c=d"]
DOUBLES = [0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf")]
STRINGS = ["", "row", "ÿ 🐎", "long " * 12, "\U0010ffff" * 9]
SOME: dict[str, Callable[[random.Random], Any]] = {
    "bigint": lambda rng: rng.choice([rng.randrange(9), -(2**40)]),
    "int": lambda rng: rng.randrange(9),
    "smallint": lambda rng: rng.randrange(-3, 4),
    "string": lambda rng: rng.choice([*STRINGS, f"row {rng.randrange(99)}"]),
    "double": lambda rng: rng.choice(DOUBLES),
    "float": lambda rng: rng.choice(DOUBLES),
    "date": lambda rng: date(2020, 2, 28) + timedelta(days=rng.randrange(5)),
    "timestamp": lambda rng: (
        datetime(1969, 12, 31, tzinfo=timezone.utc) + timedelta(microseconds=rng.randrange(10**12))
    ),
    "timestamp_ntz": lambda rng: datetime(2020, 2, 28 + rng.randrange(2)),
    "decimal(10,2)": lambda rng: Decimal(rng.randrange(-500, 500)) / 4,
    "decimal(14,3)": lambda rng: Decimal(rng.randrange(-500, 500)) / 8,
    "map<string,int>": lambda rng: [(f"k{at}", rng.choice([None, at])) for at in range(rng.randrange(3))],
}
"""Generators of values by type. Those of `float` are exact in 32 bits."""


def some_value(rng: random.Random, type: Type) -> Any:
    if rng.random() < 0.1:
        return None
    if isinstance(type, ListOf):
        return [some_value(rng, type.element) for _ in range(rng.randrange(3))]
    if isinstance(type, tuple):
        return {one.key: some_value(rng, one.type) for one in type}
    return SOME[type](rng)


def first_columns() -> list[Column]:
    def columns(**types: Type) -> list[Column]:
        return [Column(name, name, type) for name, type in types.items()]

    return columns(
        n="bigint",
        p="string",
        q="int",
        k="int",
        d="double",
        f="float",
        h="smallint",
        text="string",
        day="date",
        at="timestamp",
        e="decimal(10,2)",
        s=tuple(columns(x="int", y="string")),
        l=ListOf(tuple(columns(u="int", v="string"))),
        m="map<string,int>",
    )


@dataclass(frozen=True)
class Is:
    """A comparison of a column with a literal."""

    path: Path
    operator: str
    literal: Any = None


@dataclass(frozen=True)
class Both:
    """AND, or OR, of two conditions."""

    operator: str
    left: Condition
    right: Condition


@dataclass(frozen=True)
class Not:
    """NOT of a condition."""

    inner: Condition


Condition: TypeAlias = "Is | Both | Not"


def walk(columns: Sequence[Column], path: Path) -> list[Column]:
    """The columns and fields along a path."""
    found = []
    inside: Any = columns
    for key in path:
        column = next(one for one in inside if one.key == key)
        found.append(column)
        inside = column.type.element if isinstance(column.type, ListOf) else column.type
    return found


def sql_path(columns: Sequence[Column], path: Path, alias: str = "") -> str:
    return ".".join([*([alias] if alias else []), *(quoted(one.name) for one in walk(columns, path))])


def sql_literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def sql(condition: Condition, columns: Sequence[Column], alias: str = "") -> str:
    if isinstance(condition, Not):
        return f"NOT ({sql(condition.inner, columns, alias)})"
    if isinstance(condition, Both):
        return f"({sql(condition.left, columns, alias)} {condition.operator} {sql(condition.right, columns, alias)})"
    text, operator = sql_path(columns, condition.path, alias), condition.operator
    if operator == "IN":
        return f"{text} IN ({', '.join(map(sql_literal, condition.literal))})"
    return f"{text} {operator}" if "NULL" in operator else f"{text} {operator} {sql_literal(condition.literal)}"


def value_at(row: Row, path: Path) -> Any:
    value: Any = row
    for key in path:
        value = None if value is None else value.get(key)
    return value


def ordered(value: Any) -> Any:
    """A sort key with Spark's order: NaN is the greatest number and equals itself, -0.0 equals 0.0."""
    return (value != value, 0 if value != value else value) if isinstance(value, float | int | Decimal) else value


def holds(condition: Condition, row: Row) -> bool | None:
    """Evaluate a condition on a row with SQL's three-valued logic."""
    if isinstance(condition, Not):
        inner = holds(condition.inner, row)
        return None if inner is None else not inner
    if isinstance(condition, Both):
        sides = {holds(condition.left, row), holds(condition.right, row)}
        decides = condition.operator == "OR"
        return decides if decides in sides else (None if None in sides else not decides)
    value, operator, literal = value_at(row, condition.path), condition.operator, condition.literal
    if "NULL" in operator:
        return (value is None) == (operator == "IS NULL")
    if operator == "<=>" or value is None:
        return value is not None and ordered(value) == ordered(literal) if operator == "<=>" else None
    if operator == "IN":
        return value in literal
    left, right = ordered(value), ordered(literal)
    return bool({"=": left == right, "<>": left != right, "<": left < right, ">=": left >= right}[operator])


def some_condition(rng: random.Random, rows: Sequence[Row], columns: Sequence[Column]) -> Condition:
    """A random condition, which usually matches some rows."""
    if rng.random() < 0.3:
        word = rng.choice(["AND", "OR"])
        return Both(word, some_condition(rng, rows, columns), some_condition(rng, rows, columns))
    if rng.random() < 0.1:
        return Not(some_condition(rng, rows, columns))
    numbers = [row["n"] for row in rows] or [0]
    at = rng.choice(numbers)
    choices: list[Condition] = [
        Is(("n",), "IN", tuple(rng.sample(numbers, min(len(numbers), 4)))),
        Both("AND", Is(("n",), ">=", at), Is(("n",), "<", at + rng.randrange(1, 12))),
        Is(("k",), rng.choice(["<", "=", "<>", "<=>"]), rng.randrange(5)),
        Is(("k",), "IS NULL"),
        Is(("d",), rng.choice(["<", ">=", "=", "<>"]), rng.choice([0.0, 1.5])),
        Is(("f",), rng.choice(["<", ">=", "="]), rng.choice([0.0, 1.5])),
        Is(("p",), rng.choice(["=", "<>", "<=>"]), rng.choice(PARTS)),
        Is(("p",), rng.choice(["IS NULL", "IS NOT NULL"])),
        Is(("q",), "=", rng.randrange(9)),
        Is(("h",), ">=", 2),
        Is(("e",), "<", Decimal("-50.25")),
        Is(("s", "x"), "<", 3),
        Is(("s", "y"), "=", "row"),
        Is(("s",), "IS NULL"),
    ]
    keys = {column.key for column in columns}
    inner = {one.key for column in columns if column.key == "s" for one in column.type}  # type: ignore[union-attr]
    return rng.choice(
        [
            one
            for one in choices
            if not isinstance(one, Is) or (one.path[0] in keys and (len(one.path) == 1 or one.path[1] in inner))
        ]
    )


@dataclass(frozen=True)
class Assignment:
    """An assignment to a column, as SQL and as a function for the model."""

    path: Path
    text: Callable[[str], str] = field(repr=False)
    """The SQL expression, given the column's own name."""
    value: Callable[[Any], Any] = field(repr=False)


def some_assignments(rng: random.Random, columns: Sequence[Column]) -> list[Assignment]:
    part = rng.choice(PARTS)
    choices = [
        Assignment(("k",), lambda it: f"{it} + 1", lambda v: None if v is None else v + 1),
        Assignment(("p",), lambda _: f"'{part}'", lambda _: part),
        Assignment(("p",), lambda _: "NULL", lambda _: None),
        Assignment(("d",), lambda it: f"-{it}", lambda v: None if v is None else -v),
        Assignment(("f",), lambda _: "NULL", lambda _: None),
        Assignment(("text",), lambda it: f"concat({it}, '+')", lambda v: None if v is None else v + "+"),
        Assignment(("s", "y"), lambda _: "'é'", lambda _: "é"),
        Assignment(("s", "x"), lambda _: "7", lambda _: 7),
        Assignment(("s",), lambda _: "NULL", lambda _: None),
        Assignment(("l",), lambda _: "NULL", lambda _: None),
        Assignment(("q",), lambda _: "1", lambda _: 1),
    ]
    keys = {column.key for column in columns}
    inner = {one.key for column in columns if column.key == "s" for one in column.type}  # type: ignore[union-attr]
    rng.shuffle(choices)
    chosen: list[Assignment] = []
    for one in choices:
        known = one.path[0] in keys and (len(one.path) == 1 or one.path[1] in inner)
        if known and one.path[0] not in {other.path[0] for other in chosen}:
            chosen.append(one)
    return chosen[: rng.randrange(1, 3)]


def assigned(row: Row, changes: Iterable[Assignment]) -> Row:
    """Update a row. An assignment to a field of a null struct makes a struct whose other fields are null."""
    after = {**row, CHANGED: None}
    for change in changes:
        value = change.value(value_at(row, change.path))
        if len(change.path) == 2:
            value = {**(row.get(change.path[0]) or {}), change.path[1]: value}
        after[change.path[0]] = value
    return after


@dataclass(frozen=True)
class Clause:
    """A clause of MERGE. `changes` is None for `UPDATE SET *` and `INSERT *`, and empty for DELETE."""

    when: str
    condition: Condition | None = None
    of_source: bool = False
    """Whether the condition refers to the source."""
    changes: tuple[Assignment, ...] | None = None

    def applies(self, target: Row | None, source: Row | None) -> bool:
        row = source if self.of_source else target
        return self.condition is None or (row is not None and holds(self.condition, row) is True)


@dataclass
class State:
    """The expected state of the table at one version."""

    columns: list[Column]
    rows: list[Row] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    """Row ids by `IDENTITY`, as the table assigned them."""

    def copy(self) -> State:
        return State(list(self.columns), list(self.rows), dict(self.properties), dict(self.ids))

    def on(self, name: str) -> bool:
        return self.properties.get(f"delta.{name}") == "true"

    def column(self, key: str) -> Column:
        return next(one for one in self.columns if one.key == key)

    def table(self, rows: Iterable[Row]) -> pa.Table:
        return table_of(rows, self.columns)

    def counted(self) -> Counter[Any]:
        return counted(plain(row, self.columns) for row in self.rows)

    def keep(self, keeps: Callable[[Row], bool]) -> None:
        self.rows = [row for row in self.rows if keeps(row)]

    def update(self, condition: Condition, changes: Iterable[Assignment]) -> None:
        changes = list(changes)
        self.rows = [assigned(row, changes) if holds(condition, row) is True else row for row in self.rows]

    def merge(self, source: list[Row], extra: Condition | None, clauses: Sequence[Clause]) -> None:
        """A source row matches the target row with the same `n`, if the extra condition on the target holds."""
        after, matched = [], set()
        for row in self.rows:
            matches = [one for one in source if one["n"] == row["n"] and (extra is None or holds(extra, row) is True)]
            other = matches[0] if matches else None
            matched |= {one["n"] for one in matches}
            when = "MATCHED" if matches else "NOT MATCHED BY SOURCE"
            clause = next((one for one in clauses if one.when == when and one.applies(row, other)), None)
            if clause is None:
                after.append(row)
            elif clause.changes is None:
                assert other is not None
                after.append({**other, IDENTITY: row[IDENTITY], CHANGED: None})
            elif clause.changes:
                after.append(assigned(row, clause.changes))
        for other in source:
            if other["n"] not in matched:
                clause = next((one for one in clauses if one.when == "NOT MATCHED" and one.applies(None, other)), None)
                after += [other] if clause is not None else []
        self.rows = after

    def edit(self, path: Path, change: Callable[[list[Column]], list[Column]]) -> None:
        """Change the list of columns or fields that contains the last element of a path."""

        def inside(columns: Sequence[Column], keys: Path) -> list[Column]:
            if not keys:
                return change(list(columns))
            return [replace(one, type=within(one.type, keys[1:])) if one.key == keys[0] else one for one in columns]

        def within(type: Type, keys: Path) -> Type:
            if isinstance(type, ListOf):
                return ListOf(within(type.element, keys))
            assert isinstance(type, tuple)
            return tuple(inside(type, keys))

        self.columns = inside(self.columns, path[:-1])

    def drop(self, path: Path) -> None:
        """Drop a column and its values, so that a new column of the same key has none."""
        self.edit(path, lambda columns: [one for one in columns if one.key != path[-1]])

        def without(value: Any, keys: Path) -> Any:
            if value is None or keys[0] not in value:
                return value
            if len(keys) == 1:
                return {key: one for key, one in value.items() if key != keys[0]}
            return {**value, keys[0]: without(value[keys[0]], keys[1:])}

        self.rows = [without(row, path) for row in self.rows]

    def commit(self, version: int) -> None:
        """Set `CHANGED` of new and updated rows to this version."""
        self.rows = [row if row[CHANGED] is not None else {**row, CHANGED: version} for row in self.rows]


def feed(before: State, after: State) -> Counter[Any]:
    """The expected change data feed between two states. Call it before `commit`."""
    old = {row[IDENTITY]: row for row in before.rows}
    new = {row[IDENTITY]: row for row in after.rows}
    found = [(row, "delete") for key, row in old.items() if key not in new]
    found += [(row, "insert") for key, row in new.items() if key not in old]
    for key, row in new.items():
        if key in old and row[CHANGED] is None:
            found += [(old[key], "update_preimage"), (row, "update_postimage")]
    return counted({**plain(row, after.columns), "_change_type": kind} for row, kind in found)


def net(changes: Counter[Any]) -> Counter[Any]:
    """The net effect of changes: for each row, how many copies were added; a row removed and added again has none."""
    found: Counter[Any] = Counter()
    for row, count in changes.items():
        kind = dict(row)["_change_type"]
        sign = 1 if kind in ("insert", "update_postimage") else -1
        found[tuple(one for one in row if one[0] != "_change_type")] += sign * count
    return Counter({row: count for row, count in found.items() if count})


def difference(before: State, after: State) -> Counter[Any]:
    """The net difference of two states, independent of the changes between them."""
    found = after.counted()
    found.subtract(counted(plain(row, after.columns) for row in before.rows))
    return Counter({row: count for row, count in found.items() if count})
