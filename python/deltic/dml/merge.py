"""MERGE (`Merge`): joins the rows of a source with those of a table, and updates, deletes and inserts rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

import pyarrow as pa

from deltic.arguments import byte_size, check_filter, check_names, check_str
from deltic.dml.merge_source import DeferredSource, source_rows
from deltic.dml.values import Assigned, Preview, assignments
from deltic.errors import InvalidInputError
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.names import MERGES, no_attribute
from deltic.reading.scan import Rows
from deltic.types.ddl import quoted
from deltic.writing.data import stream
from deltic.writing.read_once import mark_as_read

__all__ = ["Merge", "MergeStep", "Steps", "metrics_of", "operation_parameters"]

T = TypeVar("T")

When: TypeAlias = Literal["matched", "not matched", "not matched by source"]

MergeStep: TypeAlias = tuple[DeferredSource | pa.Table, str, pa.Table]
"""The data for a merge: the source's rows, or the source if whoever executes the merge reads it; the request; and the
values that columns are set to."""

Steps: TypeAlias = tuple[Callable[[MergeStep], T], Callable[[MergeStep], Preview]]
"""Functions that execute and preview a merge."""


class Merge(Generic[T]):
    """A merge before its execution: add clauses, then call `execute`. Made by `Table.merge`.

    The clauses of each kind are tried in the order in which they were added: the first whose condition is TRUE applies,
    and only the last of its kind may have no condition. Conditions and values are SQL over the columns of both sides,
    `"source.price > target.price"`; a column that only one side has needs no alias. Values can also be written
    `deltic.lit(value)`. Column names are case-insensitive.

    The methods that add a clause return the merge, and raise `InvalidInputError` for an argument of a wrong type.
    Whether SQL and columns fit is known when the merge is previewed or executed.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
    >>> _ = deltic.write(table, pa.table({"item": ["nut", "bolt"], "left": [3, 5]}))
    >>> sold = pa.table({"item": ["nut", "gear"], "count": [2, 1]})
    >>> merge = table.merge(sold, "source.item = target.item").when_matched_delete("left <= count")
    >>> merge = merge.when_matched_update({"left": "left - count"}).when_not_matched_insert({"item": "source.item"})
    >>> merge.preview().rows, merge.execute().metrics["numTargetRowsUpdated"]
    (1, 1)
    >>> table.scan().to_arrow().sort_by("item").to_pylist()
    [{'item': 'bolt', 'left': 5}, {'item': 'gear', 'left': None}, {'item': 'nut', 'left': 1}]
    """

    def __init__(
        self,
        source: Any,
        on: str,
        aliases: tuple[str, str],
        table_schema: Callable[[], pa.Schema | None],
        steps: Steps[T],
        memory_limit: int | str | None = None,
    ) -> None:
        """Keep what is needed; use `Table.merge`."""
        self._source = source
        self._table_schema = table_schema
        self._execute, self._preview = steps
        self._rows: pa.Table | None = None
        self._memory_limit = None if memory_limit is None else byte_size(memory_limit, "memory_limit")
        self._is_source_spent = False
        self._aliases = (check_str(aliases[0], "source_alias"), check_str(aliases[1], "target_alias"))
        self._on = _condition(on, self._aliases)
        self._clauses: list[dict[str, Any]] = []
        self._values: list[pa.Array] = []
        self._evolves = False
        self._executed = False

    @with_keyword_hints("Merge.when_matched_update")
    def when_matched_update(self, set: Mapping[str, Assigned], condition: str | None = None) -> Merge[T]:
        """Update rows of the table that a row of the source matches; `Merge` has an example.

        Arguments:
            set: Columns and their new values, as for `Table.update`: SQL over both sides, or `deltic.lit(value)`.
            condition: SQL over both sides, such as `"source.price > target.price"`; None for all matched rows.
        """
        return self._add("matched", condition, assigned=(set, "set"))

    @with_keyword_hints("Merge.when_matched_update_all")
    def when_matched_update_all(
        self, condition: str | None = None, except_columns: Sequence[str] | None = None
    ) -> Merge[T]:
        """Update every column of matched rows to that of the source; `Table.merge` has an example.

        The source must have all of them, unless the table computes a column or the merge is `with_schema_evolution`.

        Arguments:
            condition: SQL over both sides; None for all matched rows.
            except_columns: Columns that keep their values.
        """
        return self._add("matched", condition, excepted=self._excepted(except_columns))

    @with_keyword_hints("Merge.when_matched_delete")
    def when_matched_delete(self, condition: str | None = None) -> Merge[T]:
        """Delete rows of the table that a row of the source matches; `Merge` has an example.

        Arguments:
            condition: SQL over both sides, such as `"source.deleted"`; None for all matched rows.
        """
        return self._add("matched", condition)

    @with_keyword_hints("Merge.when_not_matched_insert")
    def when_not_matched_insert(self, values: Mapping[str, Assigned], condition: str | None = None) -> Merge[T]:
        """Insert rows of the source that match no row of the table; `Merge` has an example.

        Arguments:
            values: Columns and their values: SQL over the source, or `deltic.lit(value)`. Other columns get their
                defaults, or NULL.
            condition: SQL over the source, such as `"source.count > 0"`; None for all such rows.
        """
        return self._add("not matched", condition, assigned=(values, "values"))

    @with_keyword_hints("Merge.when_not_matched_insert_all")
    def when_not_matched_insert_all(
        self, condition: str | None = None, except_columns: Sequence[str] | None = None
    ) -> Merge[T]:
        """Insert rows of the source that match no row of the table, with all columns; `Table.merge` has an example.

        Arguments:
            condition: SQL over the source; None for all such rows.
            except_columns: Columns that get their defaults, or NULL.
        """
        return self._add("not matched", condition, excepted=self._excepted(except_columns))

    @with_keyword_hints("Merge.when_not_matched_by_source_update")
    def when_not_matched_by_source_update(self, set: Mapping[str, Assigned], condition: str | None = None) -> Merge[T]:
        """Update rows of the table that no row of the source matches.

        Arguments:
            set: Columns and their new values: SQL over the table's columns, or `deltic.lit(value)`.
            condition: SQL over the table's columns, such as `"target.day < '2026-01-01'"`; None for all such rows. If
                all such clauses have conditions, only files are read that can have keys of the source or rows that
                satisfy one of them; otherwise all files are.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut", "bolt"], "left": [3, 5]}))
        >>> merge = table.merge(pa.table({"item": ["nut"]}), "source.item = target.item")
        >>> _ = merge.when_not_matched_by_source_update({"left": "0"}, "target.left > 0").execute()
        >>> table.scan().to_arrow().sort_by("item").to_pylist()
        [{'item': 'bolt', 'left': 0}, {'item': 'nut', 'left': 3}]
        """
        return self._add("not matched by source", condition, assigned=(set, "set"))

    @with_keyword_hints("Merge.when_not_matched_by_source_delete")
    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Merge[T]:
        """Delete rows of the table that no row of the source matches.

        Arguments:
            condition: SQL over the table's columns, as for `when_not_matched_by_source_update`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut", "bolt"]}))
        >>> merge = table.merge(pa.table({"item": ["nut"]}), "source.item = target.item")
        >>> merge.when_not_matched_by_source_delete().execute().metrics["numTargetRowsDeleted"]
        1
        """
        return self._add("not matched by source", condition)

    def with_schema_evolution(self) -> Merge[T]:
        """Add the columns that only the source has to the table; where `delta.enableTypeWidening` is true, widen types.

        Structs get new fields too, also in arrays and maps. A struct of the source may lack fields: they keep their
        values with `when_matched_update_all`; elsewhere they are NULL.

        The columns are all of them for `when_matched_update_all` and `when_not_matched_insert_all`; otherwise those,
        and those fields of structs, that are set to the column or field of the source of the same name,
        `{"note": "source.note"}` (PROTOCOL.md: "Type Widening").
        """
        self._evolves = True
        return self

    def preview(self) -> Preview:
        """Return what `execute` would do, without writing: see `Preview`. Values are not computed."""
        return self._preview(self._step(is_read=True))

    def execute(self) -> T:
        """Merge, as one commit, or as a step of the transaction that it was made by. Only once.

        Raises `InvalidInputError` if several rows of the source would change the same row of the table (naming its
        key), for expressions and values that do not fit, and on a table where rows may only be added
        (`delta.appendOnly`) unless it only inserts; `CommitConflictError` if another writer has changed the same rows
        meanwhile; `StorageError` if the store fails, or there is no room for a source beyond `memory_limit`; any error
        of reading the source. The table is unchanged then, and the merge can be executed again, unless reading failed
        for a source that can be read only once: a reader, a stream, a generator.
        """
        done = self._execute(self._step(is_read=False))
        if isinstance(self._source, DeferredSource):
            self._source.release()
        self._executed, self._rows, self._source = True, None, None
        return done

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            no_attribute("Merge", MERGES, name, self)

    def __repr__(self) -> str:
        kinds = [f"{clause['when']} {_action(clause)}" for clause in self._clauses]
        return f"Merge(on={self._on!r}, clauses={kinds!r})"

    def _add(
        self,
        when: When,
        where: str | None,
        assigned: tuple[Mapping[str, Assigned], str] | None = None,
        excepted: list[str] | None = None,
    ) -> Merge[T]:
        where = check_filter(where, "condition")
        columns, values = (None, None) if assigned is None else assignments(*assigned)
        # A refused clause must leave no values: these are matched to clauses by their order.
        self._clauses.append({"when": when, "condition": where, "set": columns, "except": excepted})
        self._values += [] if values is None else [column.combine_chunks() for column in values.columns]
        return self

    def _excepted(self, given: Sequence[str] | None) -> list[str]:
        return check_names(given, "except_columns") or []

    def _step(self, is_read: bool) -> MergeStep:
        """The data for the core. `is_read`: whether a deferred source is read for it."""
        if self._executed:
            raise InvalidInputError("the merge was executed already; make another with Table.merge")
        rows: pa.Table | DeferredSource
        if isinstance(self._source, DeferredSource):
            self._source.memory_limit = self._memory_limit
            rows = self._source.read() if is_read else self._source
        else:
            rows = self._read()
        request = {
            "on": self._on,
            "source_alias": self._aliases[0],
            "target_alias": self._aliases[1],
            "evolves": self._evolves,
            "clauses": self._clauses,
        }
        values = pa.Table.from_arrays(self._values, names=[str(i) for i in range(len(self._values))])
        return rows, json.dumps(request), values

    def _read(self) -> pa.Table:
        if self._rows is None:
            if self._is_source_spent:
                raise InvalidInputError("the source was read in part when the merge failed; make another merge")
            self._is_source_spent = not _can_be_read_again(self._source)
            rows = stream(self._source, self._table_schema)
            try:
                self._rows = source_rows(rows, self._memory_limit)
            finally:
                mark_as_read(self._source, None if self._rows is None else self._rows.num_rows)
            self._source = None
        return self._rows


def _condition(on: object, aliases: tuple[str, str]) -> str:
    """The condition of a merge. The error for columns, as pandas takes them, has the condition for them."""
    if isinstance(on, str):
        return check_str(on, "on")
    columns = list(on) if isinstance(on, list | tuple) and on else []
    if not columns or not all(isinstance(name, str) for name in columns):
        columns = ["id"]
    source, target = aliases
    condition = " AND ".join(f"{source}.{quoted(name)} = {target}.{quoted(name)}" for name in columns)
    kind = "None" if on is None else type(on).__name__
    raise InvalidInputError(f'on must be a string of SQL, such as "{condition}", not {kind}')


def _can_be_read_again(source: Any) -> bool:
    """Whether a source certainly returns all its rows each time it is read."""
    return isinstance(source, pa.Table | pa.RecordBatch | list | Rows) or hasattr(source, "__dataframe__")


def _action(clause: Mapping[str, Any]) -> str:
    if clause["set"] is None and clause["except"] is None:
        return "delete"
    return "insert" if clause["when"] == "not matched" else "update"


def operation_parameters(request: str) -> dict[str, str]:
    """The `operationParameters` of a merge, as in delta-spark."""
    parsed = json.loads(request)

    def clauses(when: When) -> str:
        lines = []
        for clause in parsed["clauses"]:
            if clause["when"] == when:
                action = {"actionType": _action(clause)}
                lines.append(action if clause["condition"] is None else {"predicate": clause["condition"], **action})
        return json.dumps(lines)

    return {
        "predicate": json.dumps([parsed["on"]]),
        "matchedPredicates": clauses("matched"),
        "notMatchedPredicates": clauses("not matched"),
        "notMatchedBySourcePredicates": clauses("not matched by source"),
    }


def metrics_of(text: str) -> dict[str, int]:
    """The core's counts by Delta's names."""
    counts = json.loads(text)
    updated = counts["matched_updated"] + counts["unmatched_updated"]
    deleted = counts["matched_deleted"] + counts["unmatched_deleted"]
    return {
        "numSourceRows": counts["source"],
        "numTargetRowsInserted": counts["inserted"],
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": counts["matched_updated"],
        "numTargetRowsNotMatchedBySourceUpdated": counts["unmatched_updated"],
        "numTargetRowsDeleted": deleted,
        "numTargetRowsMatchedDeleted": counts["matched_deleted"],
        "numTargetRowsNotMatchedBySourceDeleted": counts["unmatched_deleted"],
    }
