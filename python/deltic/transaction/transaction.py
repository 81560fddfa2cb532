"""Several steps as one commit (`Transaction`), and the result of a commit (`Commit`).

The reads and writes of a transaction are checked for conflicts with concurrent commits: see `docs/commit-protocol.md`.
PROTOCOL.md: "Commit Files", "Transaction Identifiers", "Domain Metadata".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import check_filter, check_names, check_optional_str, check_properties, check_str
from deltic.display.strings import html_table
from deltic.dml.merge import Merge, MergeStep, metrics_of
from deltic.dml.values import Assigned, Preview, RowChanges, assignments
from deltic.errors import InvalidInputError
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.own_methods import with_own_methods
from deltic.monitoring.telemetry import operation
from deltic.reading.scan import TableRows
from deltic.reading.snapshot import Snapshot
from deltic.results.detail import Detail
from deltic.transaction.alter import AlterMethods, columns_of
from deltic.writing.data import stream
from deltic.writing.read_once import mark_as_read

__all__ = ["Commit", "Hook", "Transaction", "TransactionScan"]

Hook: TypeAlias = Callable[[int, list[dict[str, Any]]], object]
"""Called after a commit with its version and its actions, by the protocol's names."""


@dataclass(frozen=True)
class Commit:
    """A successful commit.

    Attributes:
        version: The version that it made.
        attempts: How many versions were tried: 1 without concurrent commits, 0 if nothing was committed, because the
            application's transaction was in the table already (`version` is then one that has it), because of
            `mode="ignore"` and an existing table, or because no row had to be changed.
        num_added_files: How many data files were added.
        metrics: The commit's `operationMetrics`, whole numbers by delta-spark's names, such as `numOutputRows` and
            `numOutputBytes`: numbers of rows and of files, and sizes in bytes.
        compaction: The version of an auto compaction after it (`Table.compact_automatically`), None if there was none.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> commit = deltic.write(tempfile.mkdtemp() + "/stock", pa.table({"item": ["nut", "bolt"]}))
    >>> commit.version, commit.attempts, commit.num_added_files, commit.metrics["numOutputRows"]
    (0, 1, 1, 2)
    """

    version: int
    attempts: int
    num_added_files: int
    metrics: dict[str, int] = field(default_factory=dict)
    # Not a default, which would be an attribute of the class without documentation.
    compaction: int | None = field(default_factory=lambda: None)

    @classmethod
    def parse(cls, text: str) -> Commit:
        """Parse a commit in the form of the core; failures after the commit become warnings."""
        parsed = json.loads(text)
        metrics = dict(parsed["metrics"])
        for name in ("checksumError", "checkpointError", "cleanupError", "manifestError", "compactionError"):
            if (failure := metrics.pop(name, None)) is not None:
                warnings.warn(
                    f"after the commit of version {parsed['version']}: {failure}", RuntimeWarning, stacklevel=4
                )
        counts = {name: int(value) for name, value in metrics.items()}
        return cls(parsed["version"], parsed["attempts"], parsed["num_added_files"], counts, parsed.get("compaction"))

    def _repr_html_(self) -> str:
        lines = [("attempts", f"{self.attempts:,}"), ("files added", f"{self.num_added_files:,}")]
        if self.compaction is not None:
            lines.append(("small files packed", f"version {self.compaction}"))
        return html_table(
            f"Commit of version {self.version}" if self.attempts else f"Nothing committed: version {self.version}",
            [*lines, *((name, f"{value:,}") for name, value in self.metrics.items())],
        )


@with_own_methods
class TransactionScan(TableRows):
    """The rows of a transaction: those of its version without the ones that it removed, and those that it added."""

    _core: _deltic.TransactionScan

    def __init__(self, core: _deltic.TransactionScan) -> None:
        """Wrap a scan of the core; use `Transaction.scan`."""
        super().__init__(core)

    @property
    def num_files(self) -> int:
        """Data files that may have matching rows."""
        return self._core.num_files

    def _files(self) -> int:
        return self.num_files


class _Table(Protocol):
    """The members of `Table` that are used here; `Table` itself imports this module."""

    _core: _deltic.Table
    _row_changes: Callable[[_deltic.Transaction], RowChanges]

    @property
    def uri(self) -> str: ...

    def snapshot(self, version: int) -> Snapshot: ...


@with_own_methods
class Transaction(AlterMethods[None]):
    """Reads, appends and changes that become one commit when the `with` block ends. Made by `Table.transaction`.

    An exception inside the block abandons the transaction: nothing is committed, and the files it wrote are deleted. So
    does a conflict with another writer, which raises a `CommitConflictError` from the end of the block. After a
    `StorageError` from there the outcome may be unknown, and its message says so. After Ctrl-C the running attempt is
    finished, and the `KeyboardInterrupt` says whether the commit was made.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/stock"
    >>> _ = deltic.write(uri, pa.table({"shop": ["a", "b"], "items": [3, 4]}), partition_by=["shop"])
    >>> table = deltic.Table(uri)
    >>> with table.transaction(operation="MOVE", user_metadata={"ticket": 7}) as tx:
    ...     moved = tx.scan(filter="shop = 'a'").to_arrow()
    ...     removed = tx.remove("shop = 'a'")
    ...     rows = tx.append(moved.set_column(0, "shop", pa.array(["b"])))
    >>> tx.committed.version, sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["items"])
    (1, [{'shop': 'b', 'items': 3}, {'shop': 'b', 'items': 4}])
    """

    def __init__(
        self,
        table: _Table,
        options: Mapping[str, Any],
        max_attempts: int | None,
    ) -> None:
        """Keep what is needed to begin; use `Table.transaction`."""
        self._table = table
        self._options = dict(options)
        self._max_attempts = max_attempts
        self._running: _deltic.Transaction | None = None
        self._hooks: list[Hook] = []
        self._replayed = False
        self._committed: Commit | None = None
        self._ended = False

    @property
    def committed(self) -> Commit | None:
        """The commit; None before the end of the block, and if there was nothing to commit."""
        return self._committed

    @property
    def replayed(self) -> bool:
        """Whether the table has this `app_id` with this `app_version` or a later one: then nothing is written."""
        return self._replayed

    @property
    def snapshot(self) -> Snapshot:
        """The `Snapshot` that the transaction is based on. Reads through it are not part of the read set."""
        return Snapshot(self._core().snapshot(), self._table)

    def detail(self) -> Detail:
        """Return the facts about the version that the transaction is based on: see `Table.detail`.

        The transaction's own changes are not part of it. Raises `InvalidInputError` outside of the `with` block.
        """
        return self.snapshot.detail()

    @with_keyword_hints("Transaction.scan")
    def scan(self, columns: Sequence[str] | None = None, filter: str | None = None) -> TransactionScan:
        """Read rows with this transaction's changes, those of the columns included.

        The filter becomes part of the read set: a commit by another writer that adds rows which may match it, or
        removes files that were read, is a conflict. Without a filter the read set is the whole table.

        Arguments:
            columns: Top-level columns to return, in order; None for all.
            filter: SQL such as `"month = 7"`; `Snapshot.plan` has the grammar.

        Raises what `Snapshot.plan` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut", "bolt"], "left": [3, 0]}))
        >>> with table.transaction("RESTOCK") as tx:
        ...     _ = tx.append(pa.table({"item": ["gear"], "left": [0]}))
        ...     sorted(tx.scan(["item"], "left = 0").to_arrow()["item"].to_pylist())
        ['bolt', 'gear']
        """
        return TransactionScan(self._core().scan(check_names(columns, "columns"), check_filter(filter)))

    def append(self, data: Any) -> int:
        """Write rows to data files, to be committed at the end of the block, and return how many rows.

        Arguments:
            data: Rows in any form that `deltic.write` takes, with the columns of the table.

        Raises `InvalidInputError` for columns or values that do not fit the table, and for rows that do not satisfy its
        rules; `StorageError` if the store fails; any error of reading the data. The rows of that call are left out
        then. If the error is caught inside the block, the transaction goes on.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> with table.transaction("RESTOCK") as tx:
        ...     tx.append(pa.table({"item": ["bolt", "gear"]}))
        2
        >>> tx.committed.version
        1
        """
        core = self._core()
        rows = stream(data, self._schema)
        is_read, count = core.replayed() is None, None
        if is_read:
            # Columns that do not fit are refused before any row is read.
            core.check_rows(rows.schema)
        try:
            with operation("append", self._table.uri):
                count = core.append(rows, isinstance(rows, pa.Table))
            return count
        finally:
            if is_read:
                mark_as_read(data, count)

    @with_keyword_hints("Transaction.delete")
    def delete(self, where: str | None = None) -> int | None:
        """Delete the rows that make `where` TRUE, or all rows, and return how many, to be committed at the end.

        Later reads and changes of this transaction do not see them. The arguments, the errors and what is written are
        those of `Table.delete`; None when files went unread and their statistics do not say how many rows they have.
        """
        return self._table._row_changes(self._core()).delete(check_filter(where, "where"))

    @with_keyword_hints("Transaction.update")
    def update(self, set: Mapping[str, Assigned], where: str | None = None) -> int:
        """Set columns of the rows that make `where` TRUE, of all without it, and return how many rows.

        Later reads and changes of this transaction see them as they are then. The arguments, the errors and what is
        written are those of `Table.update`.
        """
        columns, values = assignments(set)
        return self._table._row_changes(self._core()).update(columns, values, check_filter(where, "where"))

    def merge(
        self,
        source: Any,
        on: str,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        memory_limit: int | str | None = None,
    ) -> Merge[dict[str, int]]:
        """Begin a merge of rows into the table as this transaction sees it; its `execute` is a step of it.

        The arguments, the errors and what is written are those of `Table.merge`. `execute` returns how many rows were
        inserted, updated and deleted, by the names of the commit's metrics.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"], "left": [3]}))
        >>> with table.transaction("COUNT") as tx:
        ...     merge = tx.merge(pa.table({"item": ["nut"], "left": [5]}), "source.item = target.item")
        ...     merge.when_matched_update_all().execute()["numTargetRowsUpdated"]
        1
        """

        def execute(step: MergeStep) -> dict[str, int]:
            return self._merge(step)

        def preview(step: MergeStep) -> Preview:
            return Preview.parse(self._core().merge_preview(*step))

        steps = (execute, preview)
        return Merge(source, on, (source_alias, target_alias), self._schema, steps, memory_limit)

    def remove(self, what: str | Sequence[str]) -> int:
        """Remove whole files and return how many.

        Arguments:
            what: A filter (a string) that all rows of the files satisfy, as for partitions or by the statistics; or
                paths of files (a list), as in `Snapshot.files`.

        Raises `InvalidInputError`, naming the file, for one that may have other rows than those of the filter, for a
        path that is not in the table, and on a table where rows may only be added (`delta.appendOnly`).

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"shop": ["a", "b"], "left": [3, 5]}), partition_by=["shop"])
        >>> with table.transaction("CLOSE") as tx:
        ...     tx.remove("shop = 'a'")
        1
        """
        core = self._core()
        paths = None if isinstance(what, str) else check_names(what, "what") or []
        return core.remove_where(check_str(what, "what")) if paths is None else core.remove_paths(paths)

    def set_metadata(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Any = None,
        properties: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
    ) -> None:
        """Change several parts of the table's metadata at once, before the first step that appends or changes rows.

        Methods such as `add_columns` and `set_properties` change one part each.

        Arguments:
            name: The table's name; None changes nothing, here and below.
            description: The table's description.
            schema: The whole new schema, a `pyarrow.Schema` or anything with `__arrow_c_schema__`; nullable columns may
                be added.
            properties: Properties to set; the features that they need are added to the protocol.
            unset: Names of properties to remove.

        Raises `InvalidInputError` for metadata that is invalid or cannot follow the old metadata (PROTOCOL.md: "Change
        Metadata"), `UnsupportedFeatureError` if deltic could not write the table afterwards. Row tracking is enabled by
        `Table.enable_row_tracking`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> with table.transaction("DESCRIBE") as tx:
        ...     tx.set_metadata(name="stock", properties={"owner": "shop 7"})
        >>> table.detail().name, table.detail().properties
        ('stock', {'owner': 'shop 7'})
        """
        columns = None if schema is None else columns_of(schema, "schema")
        given = {} if properties is None else check_properties(properties)
        self._alter(
            "set",
            columns,
            name=check_optional_str(name, "name"),
            description=check_optional_str(description, "description"),
            properties=given,
            unset=check_names(unset, "unset") or [],
        )

    def set_domain(self, domain: str, configuration: str | None) -> None:
        """Set the configuration of a metadata domain, or remove the domain (PROTOCOL.md: "Domain Metadata").

        Arguments:
            domain: The name of the domain.
            configuration: Its configuration, any string; None removes the domain.

        Raises `InvalidInputError` for names that begin with `delta.`, and when the table does not have the feature
        `domainMetadata`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> _ = table.add_feature("domainMetadata")
        >>> with table.transaction("LABEL") as tx:
        ...     tx.set_domain("shop.labels", "{}")
        >>> table.snapshot().domains()
        {'shop.labels': '{}'}
        """
        self._core().set_domain(check_str(domain, "domain"), check_optional_str(configuration, "configuration"))

    def described_by(self, **parameters: str) -> None:
        """Set the operation parameters for the history, before the `with` block begins; for deltic's own operations."""
        self._options["parameters"] = parameters

    def on_commit(self, hook: Hook) -> Hook:
        """Register a function to be called after the commit with its version and actions; also a decorator.

        If there is an auto compaction (`Table.compact_automatically`), it is called after that, with the commit of this
        transaction. A hook that fails is reported as a `RuntimeWarning`: the commit is not affected.

        Raises `InvalidInputError` for a hook that is not callable.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> with table.transaction("RESTOCK") as tx:
        ...     @tx.on_commit
        ...     def announce(version, actions):
        ...         print(version, sum("add" in action for action in actions))
        ...     _ = tx.append(pa.table({"item": ["bolt"]}))
        1 1
        """
        if not callable(hook):
            raise InvalidInputError(f"hook must be a function, not {type(hook).__name__}")
        self._hooks.append(hook)
        return hook

    def __repr__(self) -> str:
        if self._running is not None:
            state = "running"
        elif not self._ended:
            state = "not begun"
        elif self._committed is not None:
            state = f"{'replayed' if self.replayed else 'committed'}, version={self._committed.version}"
        else:
            state = "ended without a commit"
        return f"Transaction({self._table.uri!r}, operation={self._options.get('operation')!r}, {state})"

    def __enter__(self) -> Transaction:
        if self._running is not None or self._ended:
            raise InvalidInputError("a transaction is used once; begin another")
        self._running = _deltic.begin(self._table._core, json.dumps(self._options))
        self._replayed = self._running.replayed() is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        core = self._core()
        self._running, self._ended = None, True
        if kind is not None:
            core.abandon()
            return
        with operation("commit", self._table.uri) as span:
            done = core.commit(self._max_attempts, bool(self._hooks))
            if done is None:
                return
            self._committed, lines = span.record(Commit.parse(done[0])), done[1]
        if lines is not None:
            self._call_hooks(self._committed.version, lines)

    def drop_feature(self, name: str) -> None:
        """Drop a feature from the table's protocol, as `Table.drop_feature` does.

        Raises `InvalidInputError` as that does, and for a feature that readers need, which takes several commits.
        """
        feature = check_str(name, "name")
        self._step(lambda core: core.drop_feature(feature))

    def _step(self, step: Callable[[_deltic.Transaction], None]) -> None:
        step(self._core())

    def _merge(self, step: MergeStep) -> dict[str, int]:
        return metrics_of(self._table._row_changes(self._core()).merge(*step))

    def _schema(self) -> pa.Schema:
        """The schema after the commit."""
        return pa.schema(self._core().schema())

    def _core(self) -> _deltic.Transaction:
        if self._running is None:
            state = "has ended" if self._ended else "has not begun: use it in a `with` statement"
            raise InvalidInputError(f"the transaction {state}")
        return self._running

    def _call_hooks(self, version: int, lines: bytes) -> None:
        for hook in self._hooks:
            # Each gets its own copy of the actions, since it may change them.
            actions = [json.loads(line) for line in lines.splitlines()]
            try:
                hook(version, actions)
            except Exception as failure:
                name = getattr(hook, "__qualname__", repr(hook))
                message = f"the hook {name} failed after the commit of version {version}, which stands: {failure!r}"
                warnings.warn(message, RuntimeWarning, stacklevel=3)
