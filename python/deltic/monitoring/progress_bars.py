"""Progress of long operations: `progress`, and bars on a terminal or in a notebook.

The core counts its own work, and `Work` that of Spark's executors. The thread that called deltic makes the reports
while it waits. Without a listener and spans of OpenTelemetry nothing is counted.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, TypeAlias

from deltic import _deltic
from deltic.arguments import check_bool
from deltic.display.strings import printable, size
from deltic.errors import InvalidInputError

__all__ = ["BETWEEN_REPORTS", "Progress", "Work", "progress"]

_BAR_AFTER = 0.5
"""Seconds after which an operation gets a bar or a line: most have ended by then."""

_BETWEEN_LINES = 5.0
"""Seconds between two lines without a terminal."""

BETWEEN_REPORTS = 0.1
"""Seconds between two reports of a piece of work."""

_IDS = itertools.count(1 << 63)
"""The ids of work that Python counts. Those of the core begin at 0."""


@dataclass(frozen=True)
class Progress:
    """The progress of a piece of work.

    `operation`: its name, as the history of a table has it: `OPTIMIZE`, `REORG` (of `purge`), `VACUUM`, `CLONE`,
    `RESTORE`, `CONVERT`, `FSCK` (of `repair`), `WRITE`, `DELETE`, `UPDATE`, `MERGE`; `CHECKPOINT`, and `PURGE` for
    files that are searched for rows. `unit`: what is counted, `"files"`, `"bytes"` or `"rows"`, and `"tasks"` for work
    of Spark's executors. `done`: how many of them are done. `total`: how many there are, None if unknown before the
    end. `ended`: whether this is the last report of it, also after an error. `id`: a number that distinguishes pieces
    of work that run at the same time.
    """

    operation: str
    unit: str
    done: int
    total: int | None
    ended: bool
    id: int

    def __str__(self) -> str:
        count = size if self.unit == "bytes" else "{:,}".format
        unit = "" if self.unit == "bytes" else f" {self.unit}"
        of = "" if self.total is None else f" of {count(self.total)}"
        share = f" ({100 * self.done // self.total} %)" if self.total else ""
        return printable(f"{self.operation}: {count(self.done)}{of}{unit}{share}")


Callback: TypeAlias = Callable[[Progress], object]


_listeners: list[_Listener] = []
_lock = threading.RLock()
"""Locked while `_listeners` changes, until the core has the change."""

_calling = threading.local()
"""`process`: the one in which this thread is calling a listener, which does not apply to a forked child."""


@dataclass(eq=False)
class _Listener:
    """A listener, or False. The newest is called."""

    call: Callback | Literal[False]
    holder: weakref.ref[_Block]
    is_block: bool = False

    @property
    def is_permanent(self) -> bool:
        """Whether it is not ended by a `with` statement."""
        return not self.is_block and self.holder() is None


class _Block:
    """Ends a listener at the end of a `with` block. Without a `with` block the listener is kept."""

    def __init__(self, call: Callback | Literal[False]) -> None:
        self._listener = _Listener(call, weakref.ref(self))
        with _lock:
            # Among listeners that no `with` ends, the last one may become the newest again.
            for old in [listener for listener in _listeners if listener.is_permanent][:-1]:
                _listeners.remove(old)
            _listeners.append(self._listener)
            _register_newest()

    def __enter__(self) -> None:
        self._listener.is_block = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            if self._listener in _listeners:
                _listeners.remove(self._listener)
            _register_newest()
        if isinstance(self._listener.call, _Bars):
            self._listener.call.close()


def _newest() -> Callback | None:
    # A copy: another thread may change the list.
    newest = _listeners[-1:]
    call: Callback | Literal[False] = newest[0].call if newest else False
    return None if call is False else call


def _register_newest() -> None:
    call = _newest()
    _deltic.listen_to_progress(None if call is None else _for_core(call))


def progress(to: bool | Callback = True) -> _Block:
    """Show the progress of long operations, or call a function with it.

    Arguments:
        to: True shows bars on a terminal and in a notebook, by `tqdm` if it is installed (as with
            `deltic[progress]`), and writes a line to stderr now and then elsewhere. A function is called with a
            `Progress`. False ends both.

    It applies to the process, in all threads, until `progress` is called again; in a `with` statement until the end of
    the block, after which no call of the function begins. Of several functions only the newest is called. `optimize`,
    `purge`, `vacuum`, `restore`, `clone`, `convert`, `repair`, `checkpoint`, writing rows, `delete`, `update` and
    `merge` report their progress, the last three first by the files that they search and then by the rows that they
    change. The work of Spark's executors for `deltic.spark` is reported when their tasks end. Without a listener
    nothing is slower.

    A function is called by the thread that called deltic, while that waits: at most ten times a second for each piece
    of work, and once at its end, so that short work is reported too. It may use deltic; that is not reported. An
    `Exception` that it raises goes to `sys.unraisablehook`; the work goes on, without further reports of it. While the
    interpreter shuts down, daemon threads do not call the function. To stop the work raise `KeyboardInterrupt` in it,
    which acts like Ctrl-C.

    Raises `InvalidInputError` for any other `to`.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/log"
    >>> for day in range(5):
    ...     _ = deltic.write(uri, pa.table({"day": [day] * 3}))
    >>> reports = []
    >>> with deltic.progress(reports.append):
    ...     result = deltic.Table(uri).optimize()
    >>> last = reports[-1]
    >>> last.operation, last.unit, last.done == last.total == result.bytes_to_rewrite, last.ended
    ('OPTIMIZE', 'bytes', True, True)
    """
    if callable(to):
        return _Block(to)
    try:
        shows = check_bool(to, "to")
    except InvalidInputError:
        kind = to.__class__.__name__
        message = f"progress takes True, False or a function of a deltic.Progress, not {kind}"
        raise InvalidInputError(message) from None
    return _Block(_Bars() if shows else False)


def _for_core(call: Callback) -> Callable[[int, str, str, int, int | None, bool], object]:
    """A listener in the form of the core, which passes the members of a `Progress`."""

    def tell(id: int, operation: str, unit: str, done: int, total: int | None, ended: bool) -> None:
        _call(call, Progress(operation, unit, done, total, ended, id))

    return tell


def _is_calling() -> bool:
    return getattr(_calling, "process", None) == os.getpid()


def _call(call: Callback, report: Progress) -> None:
    """Call a function with a report, unless this is inside such a call: that work is not reported."""
    if _is_calling():
        return
    _calling.process = os.getpid()
    try:
        call(report)
    finally:
        _calling.process = None


class Work:
    """A piece of work that Python counts, in a `with` statement: reported by the same rules as the core's work."""

    def __init__(self, operation: str, unit: str, total: int | None = None) -> None:
        """Begin it; the arguments are those of `Progress`."""
        self._report = Progress(operation, unit, 0, total, False, next(_IDS))
        self._has_reported = False
        self.done = 0
        self.is_watched = _newest() is not None and not _is_calling()
        """Whether there is a listener."""

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(ended=True)

    def report(self) -> None:
        """Report how much is done, if that has changed; at most once in `BETWEEN_REPORTS`."""
        if self.done != self._report.done or not self._has_reported:
            self._tell(ended=False)

    def _tell(self, *, ended: bool) -> None:
        call = _newest()
        if call is None or not self.is_watched:
            return
        self._report = replace(self._report, done=self.done, ended=ended)
        self._has_reported = True
        try:
            _call(call, self._report)
        except Exception as error:
            self.is_watched = False
            _Unraisable(error)
        except BaseException:
            self.is_watched = False
            raise


class _Unraisable:
    """Passes an exception to `sys.unraisablehook`, as the interpreter does for destructors."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def is_terminal() -> bool:
    """Whether stderr is a terminal. There may be no stderr, or a closed one."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False


def _tqdm() -> Any:
    """The class of bars, or None if tqdm is not installed or bars cannot be shown."""
    # In a kernel without widgets `auto` writes text.
    name = "tqdm.auto" if _is_notebook() else "tqdm" if is_terminal() else None
    try:
        return None if name is None else importlib.import_module(name).tqdm
    except ImportError:
        return None


class _Bars:
    """Shows reports on stderr: as bars of tqdm, as one line that is written over, or as line after line."""

    def __init__(self) -> None:
        self._tqdm = _tqdm()
        self._lock = threading.RLock()
        self._shown: dict[int, _Bar | _Line] = {}
        self._is_closed = False

    def __call__(self, report: Progress) -> None:
        with self._lock:
            shown = self._shown.get(report.id)
            if shown is None:
                if report.ended or self._is_closed:
                    return
                shown = self._shown[report.id] = _Line() if self._tqdm is None else _Bar(self._tqdm, report)
            shown.update(report)
            if report.ended:
                self._shown.pop(report.id).close()

    def close(self) -> None:
        """Close all bars, and show nothing more."""
        with self._lock:
            self._is_closed = True
            while self._shown:
                self._shown.popitem()[1].close()


class _Bar:
    def __init__(self, tqdm: Any, report: Progress) -> None:
        unit, is_bytes = report.unit, report.unit == "bytes"
        self._bar = tqdm(
            desc=report.operation,
            total=report.total,
            unit="B" if is_bytes else f" {unit}",
            unit_scale=is_bytes,
            delay=_BAR_AFTER,
            dynamic_ncols=True,
        )

    def update(self, report: Progress) -> None:
        self._bar.update(report.done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Line:
    def __init__(self) -> None:
        self._is_terminal = is_terminal()
        self._next = time.monotonic() + _BAR_AFTER
        self._width = 0
        self._has_any = False

    def update(self, report: Progress) -> None:
        now = time.monotonic()
        if now < self._next and not (report.ended and self._has_any):
            return
        self._has_any = True
        text = str(report)
        if self._is_terminal:
            # Overwrites the end of a longer line before.
            _write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            _write(text + "\n")
            self._next = now + _BETWEEN_LINES

    def close(self) -> None:
        if self._is_terminal and self._has_any:
            _write("\n")


def _write(text: str) -> None:
    # `print` would use stdout if there is no stderr.
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.write(text)
        sys.stderr.flush()
