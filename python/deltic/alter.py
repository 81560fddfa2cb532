"""Changes of a table that leave its rows as they are: columns, properties, name, description.

`Alterable` has them. On a `Table` each is a commit of its own, on a `Transaction` a step of one. Columns are named
by their path: `a.b` inside a struct, `a.element.b` inside an array, `a.key` and `a.value` of a map, with back-ticks
around names that have dots or commas. PROTOCOL.md: "Change Metadata", "Column Mapping", "Type Widening".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import flag, optional_string, properties_of, several, string, whole
from deltic.data import refuse_geometries, refuse_names
from deltic.errors import InvalidInputError

__all__ = ["Alterable", "field"]

Done = TypeVar("Done", covariant=True)
"""What a method returns."""


class _Unset:
    """The default of `default`, for None takes a default away."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()

_TYPES: Mapping[str, pa.DataType] = {
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
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def _type_of(type: pa.DataType | str, argument: str = "type") -> pa.DataType:
    if isinstance(type, pa.DataType):
        return type
    if not isinstance(type, str):
        kind = type.__class__.__name__
        raise InvalidInputError(f"{argument} must be a pyarrow type or the name of a type of Delta, not {kind}")
    name = string(type, argument).strip().lower()
    if name in _TYPES:
        return _TYPES[name]
    if digits := _DECIMAL.fullmatch(name):
        precision, scale = int(digits[1]), int(digits[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    raise InvalidInputError(
        f"{argument} {type!r} is not a primitive type of Delta; write {', '.join(_TYPES)} or decimal(p,s), "
        "or give a pyarrow type"
    )


def field(
    name: str,
    type: pa.DataType | str,
    nullable: bool = True,
    *,
    comment: str | None = None,
    default: str | None = None,
    generated: str | None = None,
    identity: Mapping[str, Any] | None = None,
) -> pa.Field:
    """Make a column for `create` and `Table.add_columns`: a pyarrow field with the protocol's metadata.

    Arguments:
        name: Its name; for `add_columns` its path, such as `"address.zip"`.
        type: A pyarrow type, or the name of a type of Delta, such as `"long"`, `"timestamp_ntz"` or `"decimal(10,2)"`.
        nullable: Whether it may hold nulls.
        comment: What it holds, for people (key `comment`).
        default: SQL of the value that rows get which leave it out (key `CURRENT_DEFAULT`; PROTOCOL.md: "Default
            Columns").
        generated: SQL over other columns that gives its values (key `delta.generationExpression`; PROTOCOL.md:
            "Generated Columns").
        identity: Rows are numbered: `{"start": 1, "step": 1, "always": True}`, or some of these. With `always` no
            write gives values of its own (keys `delta.identity.*`; PROTOCOL.md: "Identity Columns"). The type must be
            a long.

    Raises `InvalidInputError` for an argument of another kind, and for more than one of `default`, `generated` and
    `identity`. A default or a generation expression that deltic does not evaluate is refused by `create`
    (`UnsupportedFeatureError`).

    >>> import deltic, pyarrow as pa
    >>> deltic.field("zip", "string", comment="with the country's letters").metadata
    {b'comment': b"with the country's letters"}
    >>> deltic.field("km", pa.float64(), generated="miles * 1.609344").metadata
    {b'delta.generationExpression': b'miles * 1.609344'}
    """
    metadata = {}
    if (given := optional_string(comment, "comment")) is not None:
        metadata["comment"] = given
    if (given := _sql(default, "default")) is not None:
        metadata["CURRENT_DEFAULT"] = given
    if (given := _sql(generated, "generated")) is not None:
        metadata["delta.generationExpression"] = given
    if sum(given is not None for given in (default, generated, identity)) > 1:
        raise InvalidInputError("a column has one of default, generated and identity, not several")
    chosen = _type_of(type)
    if identity is not None:
        metadata |= _identity(identity)
        if chosen != pa.int64():
            raise InvalidInputError(f"an identity column is a long, not {chosen}")
    return pa.field(string(name, "name"), chosen, flag(nullable, "nullable"), metadata or None)


def _sql(value: object, argument: str) -> str | None:
    if value is None or isinstance(value, str):
        return optional_string(value, argument)
    hint = f": write {json.dumps(value)!r}" if isinstance(value, bool | int | float) else ""
    raise InvalidInputError(f"{argument} must be a string of SQL, not {value.__class__.__name__}{hint}")


def _identity(identity: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(identity, Mapping):
        message = 'such as {"start": 1, "step": 1, "always": True}'
        raise InvalidInputError(f"identity must be a mapping, {message}, not {identity.__class__.__name__}")
    unknown = sorted(str(key) for key in identity.keys() - {"start", "step", "always"})
    if unknown:
        raise InvalidInputError(f"identity has start, step and always, not {', '.join(unknown)}")
    start = whole(identity.get("start", 1), "identity['start']", -(1 << 63))
    step = whole(identity.get("step", 1), "identity['step']", -(1 << 63))
    if start is None or not step:
        raise InvalidInputError("identity must have a start, and a step that is not 0")
    always = flag(identity.get("always", True), "identity['always']")
    return {
        "delta.identity.start": str(start),
        "delta.identity.step": str(step),
        "delta.identity.allowExplicitInsert": json.dumps(not always),
    }


def columns_of(fields: Any, argument: str) -> Any:
    """Columns as a schema: one field, several, or whatever has `__arrow_c_schema__`."""
    if isinstance(fields, pa.Field):
        fields = [fields]
    if not isinstance(fields, pa.Schema) and not hasattr(fields, "__arrow_c_schema__"):
        fields = list(fields) if isinstance(fields, Iterable) and not isinstance(fields, str | bytes) else None
        if fields is None or not all(isinstance(one, pa.Field) for one in fields):
            message = "pyarrow fields (see deltic.field) or a pyarrow schema"
            raise InvalidInputError(f"{argument} must be {message}")
        fields = pa.schema(fields)
    if isinstance(fields, pa.Schema):
        refuse_names(fields)
        refuse_geometries(fields)
    return fields


def _position(position: object) -> str | None:
    if position is None or isinstance(position, str):
        return optional_string(position, "position")
    if isinstance(position, Sequence) and len(position) == 2 and position[0] == "after":
        return f"after {string(position[1], 'position[1]')}"
    raise InvalidInputError('position must be "first" or "after x"')


class Alterable(Generic[Done]):
    """What can be changed of a table without touching a row; a `Table` and a `Transaction` are such."""

    def _step(self, step: Callable[[_deltic.Transaction], None]) -> Done:
        raise NotImplementedError

    def _alter(self, verb: str, schema: Any = None, **change: Any) -> Done:
        step = json.dumps({"verb": verb, **change})
        return self._step(lambda core: core.alter(step, schema))

    def add_columns(self, fields: pa.Field | pa.Schema | Iterable[pa.Field], after: str | None = None) -> Done:
        """Add columns, which are null in the rows that are there.

        Arguments:
            fields: pyarrow fields (see `deltic.field`) or a schema. A name is a path: `"a.b"` adds `b` inside the
                struct `a`, `"a.element.b"` inside the structs of an array.
            after: The column that the first one comes after, the others following it; by default they come last.

        Raises `InvalidInputError` for a column that is there already, a parent that is no struct, one that may not be
        null, and one with a default.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/people"
        >>> _ = deltic.write(uri, pa.table({"name": ["Ann"], "born": [1990]}))
        >>> table = deltic.Table(uri)
        >>> table.add_columns([deltic.field("city", "string", comment="where they live")], after="name").version
        1
        >>> table.scan().to_arrow().to_pylist()
        [{'name': 'Ann', 'city': None, 'born': 1990}]
        """
        return self._alter("add_columns", columns_of(fields, "fields"), after=optional_string(after, "after"))

    def rename_column(self, old: str, new: str) -> Done:
        """Rename a column; `old` is its path, `new` its name, or its path with the new name.

        Data files keep the name that they have, which needs column mapping:
        `set_properties({"delta.columnMapping.mode": "name"})`.

        Raises `InvalidInputError` without column mapping, for a column that is not there or whose new name is taken,
        and for one that a constraint or a generated column mentions (PROTOCOL.md: "Column Mapping").
        """
        return self._alter("rename_column", column=string(old, "old"), name=string(new, "new"))

    def drop_columns(self, names: str | Sequence[str]) -> Done:
        """Drop columns, by their paths. Data files keep the values, which are no longer read.

        Raises `InvalidInputError` without column mapping (see `rename_column`), for a column that is not there, the
        last one of a struct or the table, and one that the table is partitioned or clustered by or that a constraint or
        a generated column mentions.
        """
        return self._alter("drop_columns", names=several(names, "names"))

    def alter_column(
        self,
        name: str,
        type: pa.DataType | str | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        default: str | _Unset | None = UNSET,
        position: str | Sequence[str] | None = None,
    ) -> Done:
        """Alter a column; what is not given stays.

        Arguments:
            name: Its path; of `"a.element"`, `"a.key"` and `"a.value"` only the type can be altered.
            type: A wider type, where `delta.enableTypeWidening` is true: byte, short, integer to a larger one, long,
                double or a decimal; long to a decimal; float to double; decimal to one with as many digits on both
                sides of the point; date to timestamp_ntz. Data files are not rewritten (PROTOCOL.md: "Type Widening").
            nullable: True lets it hold nulls. It cannot become False: rows that are there may have some.
            comment: What it holds; `""` takes the comment away.
            default: SQL of the value that rows get from now on which leave it out; None takes it away. The feature
                `allowColumnDefaults` is added to the protocol (PROTOCOL.md: "Default Columns").
            position: `"first"`, or `"after x"` for behind the column `x` of the same struct.

        Raises `InvalidInputError` when there is no such column or it cannot be altered so, and
        `UnsupportedFeatureError` for a default that deltic does not evaluate.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/trips")
        >>> schema = pa.schema([("id", pa.int32()), ("km", pa.float32())])
        >>> _ = deltic.create(table.uri, schema)
        >>> table.alter_column("km", comment="driven, not flown", position="first").version
        1
        >>> table.snapshot().schema.names
        ['km', 'id']
        """
        change: dict[str, Any] = {
            "column": string(name, "name"),
            "nullable": None if nullable is None else flag(nullable, "nullable"),
            "comment": optional_string(comment, "comment"),
            "position": _position(position),
        }
        if not isinstance(default, _Unset):
            change["default"] = _sql(default, "default")
        wider = None if type is None else pa.schema([pa.field("type", _type_of(type))])
        return self._alter("alter_column", wider, **change)

    def replace_columns(self, schema: Any) -> Done:
        """Make these the table's columns, in this order, as far as files that are there allow it.

        `schema`: a `pyarrow.Schema` or anything with `__arrow_c_schema__`. Columns that are there keep their comments
        and what else is said of them, unless the schema says otherwise; they may become nullable, or wider as in
        `alter_column`. New ones must be nullable. With column mapping, columns that are not in the schema are dropped;
        dropping and adding at once is refused, for it may be meant as renaming.

        Raises `InvalidInputError` for anything else, naming the column.
        """
        return self._alter("replace_columns", columns_of(schema, "schema"))

    def set_properties(self, properties: Mapping[str, str]) -> Done:
        """Set table properties; the features that they need are added to the protocol.

        Names that do not begin with `delta.` are free. Raises `InvalidInputError` for a property that does not exist or
        cannot have the value, and for constraints, for which there is `add_constraint` (PROTOCOL.md: "Table
        Properties").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/sales")
        >>> _ = deltic.create(table.uri, pa.schema([("amount", pa.int64())]))
        >>> with table.transaction() as tx:
        ...     tx.set_properties({"delta.enableChangeDataFeed": "true", "owner": "billing"})
        ...     tx.set_description("What was sold")
        >>> table.snapshot().properties
        {'delta.enableChangeDataFeed': 'true', 'owner': 'billing'}
        """
        return self._alter("set_properties", properties=properties_of(properties))

    def unset_properties(self, names: str | Sequence[str]) -> Done:
        """Take table properties away. Raises `InvalidInputError` for one that is not set, or that only writers set."""
        return self._alter("unset_properties", names=several(names, "names"))

    def compact_automatically(self, enabled: bool = True) -> Done:
        """Have small files compacted after writes that leave many of them, or no more (`delta.autoOptimize.autoCompact`).

        Each writer of deltic, in Python or as Spark's driver, packs them from then on, old files of the partition
        included, in a commit of its own after the write: see `Commit.compaction` and `docs/maintenance.md`. A write
        never fails by it.
        False also sets `delta.autoOptimize`, the old name of the property, to false.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/events")
        >>> _ = deltic.create(table, pa.schema([("id", pa.int64())]))
        >>> _ = table.compact_automatically()
        >>> commits = [deltic.write(table, pa.table({"id": [id]})) for id in range(50)]
        >>> commits[-1].version, commits[-1].compaction, table.snapshot().num_files
        (51, 52, 1)
        """
        chosen = flag(enabled, "enabled")
        properties = {"delta.autoOptimize.autoCompact": json.dumps(chosen)}
        return self.set_properties(properties if chosen else {**properties, "delta.autoOptimize": "false"})

    def set_name(self, name: str | None) -> Done:
        """Set the table's name, for people; None takes it away."""
        return self._alter("set_name", name=optional_string(name, "name"))

    def set_description(self, description: str | None) -> Done:
        """Set what the table holds, for people; None takes it away."""
        return self._alter("set_description", description=optional_string(description, "description"))

    def add_constraint(self, name: str, expression: str) -> Done:
        """Add a condition that every row must make TRUE, once all rows of the table do.

        Arguments:
            name: What messages and `drop_constraint` call it; letters of either case are the same.
            expression: SQL over the table's columns (`docs/expressions.md`). A row for which it is NULL does not
                satisfy it.

        The table is read, as far as statistics do not prove the condition, and rows that others add meanwhile are a
        conflict. From then on a write with another row is refused, by every client that follows the feature
        `checkConstraints`.

        Raises `InvalidInputError` for a name that is taken, an expression that is no condition on the columns, and
        rows that do not satisfy it, with their number; `UnsupportedFeatureError` for a function that deltic does not
        evaluate (PROTOCOL.md: "CHECK Constraints").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.write(table, pa.table({"amount": [1, 20]}))
        >>> _ = table.add_constraint("positive", "amount > 0")
        >>> table.detail().properties
        {'delta.constraints.positive': 'amount > 0'}
        """
        name, expression = string(name, "name"), string(expression, "expression")
        return self._step(lambda core: core.add_constraint(name, expression))

    def drop_constraint(self, name: str) -> Done:
        """Drop a constraint. Raises `InvalidInputError`, naming those that there are, for one that is not there."""
        return self._alter("drop_constraint", name=string(name, "name"))

    def cluster_by(self, columns: str | Sequence[str] | None) -> Done:
        """Lay out files by some columns from now on; None for no more.

        `columns`: paths of up to four columns of numbers, strings, dates or timestamps. Files that are there stay as
        they are: those that are added have statistics of the columns, and `Table.optimize` rewrites files in their
        order. The features `clustering` and `domainMetadata` are added to the protocol.

        Raises `InvalidInputError` for a table with partitions, and for a column that is not there, is inside an array
        or a map, or has no statistics (PROTOCOL.md: "Clustered Table").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/visits")
        >>> _ = deltic.create(table, pa.schema([("day", pa.date32()), ("page", pa.string())]), cluster_by="day")
        >>> _ = table.cluster_by(["page", "day"])
        >>> table.detail().clustering_columns
        ['page', 'day']
        """
        return self._alter("cluster_by", columns=[] if columns is None else several(columns, "columns"))

    def add_feature(self, name: str) -> Done:
        """Add a feature to the table's protocol, such as `"domainMetadata"` (PROTOCOL.md: "Table Features").

        Raises `InvalidInputError` for an unknown feature or one that needs another first, `UnsupportedFeatureError`
        for one that deltic does not follow.
        """
        feature = string(name, "name")
        return self._step(lambda core: core.add_feature(feature))
