"""The exceptions that deltic raises, one class for each way in which a caller can react.

Every class derives from :class:`DelticError` and, where Python has a fitting built-in exception, from that as well, so
``except FileNotFoundError`` and ``except OSError`` keep working. ``str(error)`` is the whole message: what was wrong,
where, and what to do. The attributes have the same facts for programs. All exceptions can be pickled, because Spark and
``multiprocessing`` send them from process to process. Control characters of names in a log are escaped, in messages and
in the attributes that are locations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deltic.display.strings import printable, printable_message

__all__ = [
    "CommitConflictError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "CorruptTableError",
    "DelticError",
    "InvalidInputError",
    "MetadataChangedError",
    "ProtocolChangedError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
]


class DelticError(Exception):
    r"""Base of everything that deltic raises on purpose.

    This class itself is raised only for a defect in deltic; please report it with the message.

    Attributes:
        table: Location of the table, without credentials; ``None`` when no table was involved.
        version: Version of the table's log at which it happened; ``None`` when unknown.
        path: The file concerned, as in the log, with control characters escaped as in ``\x1b``; ``None`` if the error
            is not about one file.
    """

    table: str | None
    version: int | None
    path: str | None

    def __init__(
        self,
        message: str = "",
        *,
        table: str | None = None,
        version: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(printable_message(message))
        self.table = table if table is None else printable(table)
        self.version = version
        self.path = path if path is None else printable(path)

    def __reduce__(self) -> tuple[Any, ...]:
        # Explicit, because the built-in bases disagree: OSError rebuilds itself from errno and file name.
        return type(self), self.args, self.__dict__.copy()


class TableNotFoundError(DelticError, FileNotFoundError):
    """There is no table at the location.

    Check the location, or create the table first.
    """


class VersionNotFoundError(DelticError, LookupError):
    """The table exists, but the requested version cannot be read: it does not exist yet, or is no longer in the log.

    Request another version. It is not a `TableNotFoundError`, since a handler of that may create the table.

    Attributes:
        earliest_version: The oldest version that can be read; ``None`` when unknown.
        latest_version: The newest version; ``None`` when unknown.
    """

    earliest_version: int | None
    latest_version: int | None

    def __init__(
        self,
        message: str = "",
        *,
        earliest_version: int | None = None,
        latest_version: int | None = None,
        **place: Any,
    ) -> None:
        super().__init__(message, **place)
        self.earliest_version = earliest_version
        self.latest_version = latest_version


class TableExistsError(DelticError, FileExistsError):
    """There is a table already at the location where one was to be created.

    Append to it or overwrite it, or choose another location.
    """


class UnsupportedFeatureError(DelticError, NotImplementedError):
    """The table or the call needs something that deltic does not support.

    Use a client that supports the feature, or remove the feature from the table.

    Attributes:
        features: What is missing: names of features in the table's protocol, or a description of what deltic does not
            support.
    """

    features: tuple[str, ...]

    def __init__(self, message: str = "", *, features: Iterable[str] = (), **place: Any) -> None:
        super().__init__(message, **place)
        self.features = tuple(features)


class CorruptTableError(DelticError):
    """Bytes in storage violate the Delta protocol.

    Trying again does not help: restore the file that ``path`` names, or restore the table to a version before
    ``version``.
    """


class InvalidInputError(DelticError, ValueError):
    """An argument is wrong: a filter that does not fit the schema, data of a wrong type, a stream read twice.

    Change the call; the message says what to change.
    """


class StorageError(DelticError, OSError):
    """The object store or file system failed, or refused a request.

    Attributes:
        retryable: Whether the same call may succeed if it is repeated (time-outs, throttling). If false, check
            permissions, configuration and the network first.
    """

    retryable: bool

    def __init__(self, message: str = "", *, retryable: bool = False, **place: Any) -> None:
        super().__init__(message, **place)
        self.retryable = retryable


class CommitConflictError(DelticError):
    """Another writer committed first, and this commit conflicts with that one.

    Nothing was committed. Read the table again and redo the operation if it is still wanted; the subclass says what the
    other writer did.

    Attributes:
        winning_version: The version of the conflicting commit; ``None`` if unknown.
    """

    winning_version: int | None

    def __init__(self, message: str = "", *, winning_version: int | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.winning_version = winning_version


class ConcurrentAppendError(CommitConflictError):
    """Another writer's commit added rows to a part of the table that this transaction has read.

    Read again and redo the operation. Narrower filters on partition columns make this rarer.
    """


class ConcurrentDeleteReadError(CommitConflictError):
    """Another writer's commit removed a file that this transaction has read.

    Read again and redo the operation.
    """


class ConcurrentDeleteDeleteError(CommitConflictError):
    """Another writer's commit removed a file, or deleted a row, that this transaction removes or deletes too.

    Read again; the rows may no longer exist.
    """


class MetadataChangedError(CommitConflictError):
    """Another writer's commit changed the schema, partitioning or properties, or wrote rows with an identity column.

    Read again and check that the data still fits the table.
    """


class ProtocolChangedError(CommitConflictError):
    """Another writer's commit changed the table's protocol, or created the table at the same moment.

    Open the table again: its features may have changed since this transaction was planned.
    """


class ConcurrentTransactionError(CommitConflictError):
    """Another writer's commit set an application transaction or a metadata domain that this transaction depends on.

    Usually the same job is running twice: check what the other run has committed before doing anything.
    """
