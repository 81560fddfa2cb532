"""OpenTelemetry spans: one for each operation, if the program traces (`pip install 'deltic[otel]'`).

Its children `deltic.core.NAME` are the pieces of work of the core, which measures when they began and ended. A program
that configures a tracer provider has imported OpenTelemetry's API. Until then deltic imports nothing of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, TypeVar

from deltic import _deltic

__all__ = ["Operation", "operation"]

Result = TypeVar("Result")

_FILES = ("num_added_files", "files_deleted", "files_to_rewrite", "num_restored_files", "num_files", "files_kept")
_ROWS = ("num_rows", "rows_deleted")
_BYTES = ("bytes_deleted", "bytes_to_rewrite", "restored_files_size", "bytes_kept", "nbytes", "num_bytes")
_ROW_METRICS = (
    ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    ("numOutputRows",),
    ("numDeletedRows",),
    ("numUpdatedRows",),
)
_BYTE_METRICS = ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded")


class Operation:
    """The span of an operation; does nothing without a tracer."""

    __slots__ = ("_manager", "_span", "_trace", "_tracer")

    def __init__(self, manager: AbstractContextManager[Any] | None, tracer: Any = None) -> None:
        """Keep the context manager of the span, and its tracer; use `operation`."""
        self._manager, self._tracer = manager, tracer
        self._span: Any = None
        self._trace: int | None = None

    def __enter__(self) -> Operation:
        if self._manager is not None:
            # A tracer that fails must not stop the operation, nor make a finished one look failed.
            with suppress(Exception):
                self._span = self._manager.__enter__()
                self._trace = _deltic.begin_trace(bool(self._span.is_recording()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is None or self._span is None:
            return
        try:
            if self._trace is not None:
                with suppress(Exception):
                    self._add_work(*_deltic.end_trace(self._trace))
        finally:  # exporting many spans may take long enough for Ctrl-C
            with suppress(Exception):
                if kind is not None:
                    self._set("error.type", kind.__qualname__)
            with suppress(Exception):
                self._manager.__exit__(kind, error, trace)

    def record(self, result: Result) -> Result:
        """Record the result in the span, and return it."""
        # An attribute that cannot be recorded, such as a count that needs the store, must not make a finished operation
        # fail.
        with suppress(Exception):
            if self._span is not None and self._span.is_recording():
                for name, value in _attributes(result).items():
                    self._set(name, value)
        return result

    def _add_work(self, pieces: list[tuple[str, str, int, int, int]], left_out: int) -> None:
        """Add a span for each piece of the core's work."""
        if left_out:
            self._set("deltic.work_left_out", left_out)
        if not pieces:
            return
        # All are direct children: whether one was part of another is not known.
        context = sys.modules["opentelemetry.trace"].set_span_in_context(self._span)
        for name, unit, done, start, end in pieces:
            span = self._tracer.start_span(
                f"deltic.core.{name.lower().replace(' ', '_')}",
                context=context,
                start_time=start,
                attributes={f"deltic.{unit}": done},
            )
            span.end(end_time=end)

    def _set(self, name: str, value: str | int | bool) -> None:
        if self._span is not None:
            self._span.set_attribute(name, value)


_UNTRACED = Operation(None)


def operation(name: str, location: str | None = None) -> Operation:
    """Begin an operation in a `with` statement: a span `deltic.NAME`, in which an error is recorded.

    `location`: the table's, in the form of the core, without credentials and query.
    """
    api = sys.modules.get("opentelemetry.trace")
    # While it is being imported, perhaps by another thread, it has no functions yet.
    get_tracer: Callable[..., Any] | None = getattr(api, "get_tracer", None)
    if get_tracer is None:
        return _UNTRACED
    attributes = {} if location is None else {"deltic.table": location}
    with suppress(Exception):
        tracer = get_tracer("deltic", _deltic.__version__)
        return Operation(tracer.start_as_current_span(f"deltic.{name}", attributes=attributes), tracer)
    return _UNTRACED


def _attributes(result: Any) -> dict[str, str | int | bool]:
    """The attributes of a span for a result."""
    if isinstance(result, int):
        return {"deltic.version": result}
    fields: dict[str, str | int | bool] = {}
    metrics = getattr(result, "metrics", None) or {}
    versions = getattr(result, "versions", None)
    version = versions[-1] if isinstance(versions, list) and versions else getattr(result, "version", None)
    rows = [sum(metrics.get(name, 0) for name in names) for names in _ROW_METRICS if names[0] in metrics]
    found = {
        "deltic.version": [version],
        "deltic.files": [getattr(result, name, None) for name in _FILES],
        "deltic.rows": [*rows, *(getattr(result, name, None) for name in _ROWS)],
        "deltic.bytes": [*map(metrics.get, _BYTE_METRICS), *(getattr(result, name, None) for name in _BYTES)],
        "deltic.dry_run": [getattr(result, "dry_run", None)],
    }
    for name, values in found.items():
        if (value := next((value for value in values if isinstance(value, int)), None)) is not None:
            fields[name] = value
    if isinstance(attempts := getattr(result, "attempts", None), int):
        fields["deltic.retries"] = max(attempts - 1, 0)
    return fields
