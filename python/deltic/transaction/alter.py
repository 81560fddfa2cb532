"""Changes of a table that change no rows: columns, properties, name, description.

They are methods of `AlterMethods`. On a `Table` each makes a commit, on a `Transaction` a step of one commit. Columns
are named by their path: `a.b` inside a struct, `a.element.b` inside an array, `a.key` and `a.value` of a map, with
back-ticks around names that have dots or commas. PROTOCOL.md: "Change Metadata", "Column Mapping", "Type Widening".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import check_bool, check_int, check_name_or_names, check_optional_str, check_properties, check_str
from deltic.errors import InvalidInputError
from deltic.types.ddl import LENGTHS, NAMES, TypeSyntaxError, field_of_type
from deltic.writing.data import refuse_geometries, refuse_names

__all__ = ["AlterMethods", "field"]

Done = TypeVar("Done", covariant=True)
"""What a method returns."""


class _Unset:
    """The default of `default`, since None removes a default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


def _column(name: str, type: pa.DataType | str, argument: str = "type") -> pa.Field:
    """A nullable column, whose metadata have what Arrow's types do not."""
    if isinstance(type, pa.DataType):
        return pa.field(name, type)
    if not isinstance(type, str):
        kind = type.__class__.__name__
        raise InvalidInputError(f"{argument} must be a pyarrow type or the name of a type of Delta, not {kind}")
    try:
        return field_of_type(name, check_str(type, argument))
    except TypeSyntaxError as error:
        message = f"{argument} {type!r} is not a type of Delta: {error}"
        raise InvalidInputError(f"{message}; write {NAMES}, or give a pyarrow type") from None


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
        type: A pyarrow type, or a type as in Delta's DDL, such as `"long"`, `"timestamp_ntz"`, `"decimal(10,2)"`,
            `"varchar(20)"`, `"variant"`, `"geometry(EPSG:4326)"`, `"array<int>"`, `"map<string, double>"` or
            `"struct<street: string, zip: int NOT NULL COMMENT 'five digits'>"`. What Arrow's types do not have is in
            the metadata: variants and geometries under `delta.type`, the length of `char(n)` and `varchar(n)` under
            `__CHAR_VARCHAR_TYPE_STRING`, as in Spark.
        nullable: Whether it may have nulls.
        comment: Its description, as information (key `comment`).
        default: SQL for the value of rows that are written without it (key `CURRENT_DEFAULT`; PROTOCOL.md: "Default
            Columns").
        generated: SQL over other columns that computes its values (key `delta.generationExpression`; PROTOCOL.md:
            "Generated Columns").
        identity: Rows are numbered: `{"start": 1, "step": 1, "always": True}`, or some of these. With `always` writes
            cannot give values (keys `delta.identity.*`; PROTOCOL.md: "Identity Columns"). The type must be a long.

    Raises `InvalidInputError` for an argument of a wrong type, and for more than one of `default`, `generated` and
    `identity`. A default or a generation expression that deltic does not evaluate is refused by `create`
    (`UnsupportedFeatureError`).

    >>> import deltic, pyarrow as pa
    >>> deltic.field("zip", "string", comment="with the country's letters").metadata
    {b'comment': b"with the country's letters"}
    >>> deltic.field("tags", "array<varchar(3)>").type, deltic.field("event", "variant").metadata
    (ListType(list<element: string>), {b'delta.type': b'variant'})
    >>> deltic.field("km", pa.float64(), generated="miles * 1.609344").metadata
    {b'delta.generationExpression': b'miles * 1.609344'}
    """
    metadata = {}
    if (given := check_optional_str(comment, "comment")) is not None:
        metadata["comment"] = given
    if (given := _sql(default, "default")) is not None:
        metadata["CURRENT_DEFAULT"] = given
    if (given := _sql(generated, "generated")) is not None:
        metadata["delta.generationExpression"] = given
    if sum(given is not None for given in (default, generated, identity)) > 1:
        raise InvalidInputError("a column has one of default, generated and identity, not several")
    column = _column(check_str(name, "name"), type)
    metadata |= {key.decode(): value.decode() for key, value in (column.metadata or {}).items()}
    if identity is not None:
        metadata |= _identity(identity)
        if column.type != pa.int64():
            raise InvalidInputError(f"an identity column is a long, not {column.type}")
    return pa.field(column.name, column.type, check_bool(nullable, "nullable"), metadata or None)


def _sql(value: object, argument: str) -> str | None:
    if value is None or isinstance(value, str):
        return check_optional_str(value, argument)
    hint = f": write {json.dumps(value)!r}" if isinstance(value, bool | int | float) else ""
    raise InvalidInputError(f"{argument} must be a string of SQL, not {value.__class__.__name__}{hint}")


def _identity(identity: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(identity, Mapping):
        message = 'such as {"start": 1, "step": 1, "always": True}'
        raise InvalidInputError(f"identity must be a mapping, {message}, not {identity.__class__.__name__}")
    unknown = sorted(str(key) for key in identity.keys() - {"start", "step", "always"})
    if unknown:
        raise InvalidInputError(f"identity has start, step and always, not {', '.join(unknown)}")
    start = check_int(identity.get("start", 1), "identity['start']", -(1 << 63))
    step = check_int(identity.get("step", 1), "identity['step']", -(1 << 63))
    if start is None or not step:
        raise InvalidInputError("identity must have a start, and a step that is not 0")
    always = check_bool(identity.get("always", True), "identity['always']")
    return {
        "delta.identity.start": str(start),
        "delta.identity.step": str(step),
        "delta.identity.allowExplicitInsert": json.dumps(not always),
    }


_FIELDS = "[deltic.field('id', 'long', nullable=False), deltic.field('name', 'string')]"
"""How columns are written, for messages."""


def columns_of(fields: Any, argument: str) -> Any:
    """Columns as a schema: one field, several, or anything with `__arrow_c_schema__`."""
    given = fields
    if isinstance(fields, pa.Field):
        fields = [fields]
    if not isinstance(fields, pa.Schema) and not hasattr(fields, "__arrow_c_schema__"):
        fields = list(fields) if isinstance(fields, Iterable) and not isinstance(fields, str | bytes) else None
        if fields is None or not all(isinstance(one, pa.Field) for one in fields):
            kind = "None" if given is None else type(given).__name__
            message = f"{argument} must be pyarrow fields or a pyarrow schema, not {kind}: write {_FIELDS}"
            raise InvalidInputError(message)
        fields = pa.schema(fields)
    if isinstance(fields, pa.Schema):
        refuse_names(fields)
        refuse_geometries(fields)
    return fields


def _position(position: object) -> str | None:
    if position is None or isinstance(position, str):
        return check_optional_str(position, "position")
    if isinstance(position, Sequence) and len(position) == 2 and position[0] == "after":
        return f"after {check_str(position[1], 'position[1]')}"
    raise InvalidInputError('position must be "first" or "after x"')


class AlterMethods(Generic[Done]):
    """The methods of `Table` and `Transaction` that change the table and no rows."""

    def _step(self, step: Callable[[_deltic.Transaction], None]) -> Done:
        raise NotImplementedError

    def _alter(self, verb: str, schema: Any = None, **change: Any) -> Done:
        step = json.dumps({"verb": verb, **change})
        return self._step(lambda core: core.alter(step, schema))

    def add_columns(self, fields: pa.Field | pa.Schema | Iterable[pa.Field], after: str | None = None) -> Done:
        """Add columns, which are null in existing rows.

        Arguments:
            fields: pyarrow fields (see `deltic.field`) or a schema. A name is a path: `"a.b"` adds `b` inside the
                struct `a`, `"a.element.b"` inside the structs of an array.
            after: The column after which they are added, in their order; by default they come last.

        Raises `InvalidInputError` for a column that exists already, a parent that is no struct, a column that is not
        nullable, and one with a default.

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
        return self._alter("add_columns", columns_of(fields, "fields"), after=check_optional_str(after, "after"))

    def rename_column(self, old: str, new: str) -> Done:
        """Rename a column. Data files keep the old name.

        This needs column mapping: `set_properties({"delta.columnMapping.mode": "name"})`.

        Arguments:
            old: The path of the column, such as `"address.city"`.
            new: Its new name, or its path with the new name.

        Raises `InvalidInputError` without column mapping, for a column that does not exist or whose new name is taken,
        and for one that a constraint or a generated column uses (PROTOCOL.md: "Column Mapping").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/trips")
        >>> _ = deltic.write(table, pa.table({"km": [5]}), properties={"delta.columnMapping.mode": "name"})
        >>> _ = table.rename_column("km", "distance")
        >>> table.scan().to_arrow().to_pylist()
        [{'distance': 5}]
        """
        return self._alter("rename_column", column=check_str(old, "old"), name=check_str(new, "new"))

    def drop_columns(self, names: str | Sequence[str]) -> Done:
        """Drop columns. Data files keep the values, which are no longer read; `Table.purge` removes them.

        Arguments:
            names: The path of a column, such as `"address.city"`, or several in a list.

        Raises `InvalidInputError` without column mapping (see `rename_column`), for a column that does not exist, the
        last one of a struct or the table, and one by which the table is partitioned or clustered or that a constraint
        or a generated column uses.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/trips")
        >>> _ = deltic.write(table, pa.table({"id": [1], "km": [5]}), properties={"delta.columnMapping.mode": "name"})
        >>> _ = table.drop_columns(["km"])
        >>> table.snapshot().schema.names
        ['id']
        """
        return self._alter("drop_columns", names=check_name_or_names(names, "names"))

    def alter_column(
        self,
        name: str,
        type: pa.DataType | str | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        default: str | _Unset | None = UNSET,
        position: str | Sequence[str] | None = None,
    ) -> Done:
        """Alter a column; arguments that are not given change nothing.

        Arguments:
            name: Its path; of `"a.element"`, `"a.key"` and `"a.value"` only the type can be altered.
            type: A wider type, if `delta.enableTypeWidening` is true: byte, short, integer to a larger one, long,
                double or a decimal; long to a decimal; float to double; decimal to one with as many digits on both
                sides of the point; date to timestamp_ntz. Data files are not rewritten (PROTOCOL.md: "Type Widening").
            nullable: True makes it nullable. False is refused: existing rows may have nulls.
            comment: Its description; `""` removes the comment.
            default: SQL for the value of rows that are written without it from now on; None removes it. The feature
                `allowColumnDefaults` is added to the protocol (PROTOCOL.md: "Default Columns").
            position: `"first"`, or `"after x"`, where `x` is a column of the same struct.

        Raises `InvalidInputError` if there is no such column or it cannot be altered in this way, and
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
            "column": check_str(name, "name"),
            "nullable": None if nullable is None else check_bool(nullable, "nullable"),
            "comment": check_optional_str(comment, "comment"),
            "position": _position(position),
        }
        if not isinstance(default, _Unset):
            change["default"] = _sql(default, "default")
        wider = None if type is None else pa.schema([_column("type", type)])
        if wider is not None and LENGTHS in (wider.field(0).metadata or {}):
            message = "the length of a char or varchar is fixed when the column is made: give another type"
            raise InvalidInputError(f"type {type!r} cannot be set: {message}")
        return self._alter("alter_column", wider, **change)

    def replace_columns(self, schema: Any) -> Done:
        """Make these the table's columns, in this order, if the existing files allow it.

        Arguments:
            schema: A `pyarrow.Schema` or anything with `__arrow_c_schema__`. Existing columns keep their comments and
                other metadata unless the schema has others; they may become nullable, or wider as in `alter_column`.
                New ones must be nullable. With column mapping, columns that are not in the schema are dropped; dropping
                and adding at once is refused, since a rename may be meant.

        Raises `InvalidInputError` for anything else, naming the column.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/trips")
        >>> _ = deltic.write(table, pa.table({"id": [1], "km": [5]}))
        >>> schema = table.snapshot().schema
        >>> _ = table.replace_columns(pa.schema([schema.field("km"), schema.field("id"), ("day", pa.date32())]))
        >>> table.snapshot().schema.names
        ['km', 'id', 'day']
        """
        return self._alter("replace_columns", columns_of(schema, "schema"))

    def set_properties(self, properties: Mapping[str, str]) -> Done:
        """Set table properties; the features that they need are added to the protocol.

        Names that do not begin with `delta.` can be chosen freely. Raises `InvalidInputError` for a property that does
        not exist or cannot have the value, and for constraints, which `add_constraint` adds (PROTOCOL.md: "Table
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
        return self._alter("set_properties", properties=check_properties(properties))

    def unset_properties(self, names: str | Sequence[str]) -> Done:
        """Remove table properties.

        Arguments:
            names: The name of a property, or several in a list.

        Raises `InvalidInputError` for one that is not set, or that only writers set.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/sales")
        >>> _ = deltic.create(table, pa.schema([("amount", pa.int64())]), properties={"owner": "billing"})
        >>> _ = table.unset_properties("owner")
        >>> table.snapshot().properties
        {}
        """
        return self._alter("unset_properties", names=check_name_or_names(names, "names"))

    def compact_automatically(self, enabled: bool = True) -> Done:
        """Turn auto compaction, after writes, on or off (`delta.autoOptimize.autoCompact`).

        If it is on, each writer of deltic, in Python or on Spark's driver, compacts the small files of a partition, old
        ones included, when a write leaves many of them there. This is a commit of its own after the write, and cannot
        make the write fail: see `Commit.compaction` and `docs/maintenance.md`. False also sets `delta.autoOptimize`,
        the old name of the property, to false.

        Arguments:
            enabled: Whether it is on.

        Raises the errors of `set_properties`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/events")
        >>> _ = deltic.create(table, pa.schema([("id", pa.int64())]))
        >>> _ = table.compact_automatically()
        >>> commits = [deltic.write(table, pa.table({"id": [id]})) for id in range(50)]
        >>> commits[-1].version, commits[-1].compaction, table.snapshot().num_files
        (51, 52, 1)
        """
        chosen = check_bool(enabled, "enabled")
        properties = {"delta.autoOptimize.autoCompact": json.dumps(chosen)}
        return self.set_properties(properties if chosen else {**properties, "delta.autoOptimize": "false"})

    def set_name(self, name: str | None) -> Done:
        """Set the table's name, which is information only.

        Arguments:
            name: The name; None removes it.

        Raises `InvalidInputError` for another type than a string.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/sales")
        >>> _ = deltic.create(table, pa.schema([("amount", pa.int64())]))
        >>> _ = table.set_name("sales")
        >>> _ = table.set_description("What was sold")
        >>> table.detail().name, table.detail().description
        ('sales', 'What was sold')
        """
        return self._alter("set_name", name=check_optional_str(name, "name"))

    def set_description(self, description: str | None) -> Done:
        """Set the table's description, which is information only; `set_name` has an example.

        Arguments:
            description: The description; None removes it.

        Raises `InvalidInputError` for another type than a string.
        """
        return self._alter("set_description", description=check_optional_str(description, "description"))

    def add_constraint(self, name: str, expression: str) -> Done:
        """Add a CHECK constraint: a condition that every row must make TRUE, those of the table included.

        Arguments:
            name: Its name in messages and for `drop_constraint`; case-insensitive.
            expression: SQL over the table's columns (`docs/expressions.md`). A row for which it is NULL does not
                satisfy it.

        Files are read unless their statistics prove the condition, and rows that others add meanwhile are a conflict.
        From then on a write with a row that does not satisfy it is refused by every client that supports the feature
        `checkConstraints`.

        Raises `InvalidInputError` for a name that is taken, an expression that is not a condition on the columns, and
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
        name, expression = check_str(name, "name"), check_str(expression, "expression")
        return self._step(lambda core: core.add_constraint(name, expression))

    def drop_constraint(self, name: str) -> Done:
        """Drop a CHECK constraint.

        Arguments:
            name: Its name, case-insensitive.

        Raises `InvalidInputError` for an unknown one, and names those of the table.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> schema = pa.schema([("amount", pa.int64())])
        >>> _ = deltic.create(table, schema, constraints={"positive": "amount > 0"})
        >>> _ = table.drop_constraint("positive")
        >>> table.detail().properties
        {}
        """
        return self._alter("drop_constraint", name=check_str(name, "name"))

    def cluster_by(self, columns: str | Sequence[str] | None) -> Done:
        """Cluster the table by these columns from now on; None ends clustering.

        `columns`: paths of up to four columns of numbers, strings, dates or timestamps. Existing files are not changed:
        new ones have statistics of the columns, and `Table.optimize` rewrites files in their order. The features
        `clustering` and `domainMetadata` are added to the protocol.

        Raises `InvalidInputError` for a table with partitions, and for a column that does not exist, is inside an array
        or a map, or has no statistics (PROTOCOL.md: "Clustered Table").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/visits")
        >>> _ = deltic.create(table, pa.schema([("day", pa.date32()), ("page", pa.string())]), cluster_by="day")
        >>> _ = table.cluster_by(["page", "day"])
        >>> table.detail().clustering_columns
        ['page', 'day']
        """
        return self._alter("cluster_by", columns=[] if columns is None else check_name_or_names(columns, "columns"))

    def add_feature(self, name: str) -> Done:
        """Add a feature to the table's protocol (PROTOCOL.md: "Table Features").

        Arguments:
            name: The feature, such as `"domainMetadata"`.

        Raises `InvalidInputError` for an unknown feature or one that needs another first, `UnsupportedFeatureError` for
        one that deltic does not support.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.create(table, pa.schema([("amount", pa.int64())]))
        >>> _ = table.add_feature("domainMetadata")
        >>> "domainMetadata" in table.detail().table_features
        True
        """
        feature = check_str(name, "name")
        return self._step(lambda core: core.add_feature(feature))
