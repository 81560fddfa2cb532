"""How far long work has come: `progress`, and bars on a terminal or in a notebook.

The core counts, and `Work` for what Python waits for. The thread that called deltic reports while it waits. Nothing is
counted unless somebody wants to know.
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
from deltic.arguments import flag
from deltic.display import printable, size
from deltic.errors import InvalidInputError

__all__ = ["BETWEEN_REPORTS", "Progress", "Work", "progress"]

_BAR_AFTER = 0.5
"""Seconds that work takes before there is a bar or a line of it: most is over by then."""

_BETWEEN_LINES = 5.0
"""Seconds between two lines where there is no terminal."""

BETWEEN_REPORTS = 0.1
"""Seconds between two reports of a piece of work."""

_IDS = itertools.count(1 << 63)
"""Of work that Python counts. The core counts its own from 0."""


@dataclass(frozen=True)
class Progress:
    """How far a piece of work has come.

    `operation`: its name, as the history of a table has it: `OPTIMIZE`, `REORG` (of `purge`), `VACUUM`, `CLONE`,
    `RESTORE`, `CONVERT`, `FSCK` (of `repair`), `WRITE`, `DELETE`, `UPDATE`, `MERGE`; `CHECKPOINT`, and `PURGE` for
    files that are searched for rows. `unit`: what is counted, `"files"`, `"bytes"` or `"rows"`, and `"tasks"` where the
    executors of Spark do it. `done`: how many of them are done. `total`: how many there are, None if unknown before the
    end. `ended`: whether this is the last report of it, whatever came of it. `id`: a number that tells pieces of work
    apart that go on at once.
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


_listening: list[_Listening] = []
_lock = threading.RLock()
"""Held where `_listening` changes, until the core knows."""

_calling = threading.local()
"""`process`: in which one this thread calls a function with a report. A child that is forked meanwhile does not."""


@dataclass(eq=False)
class _Listening:
    """A listener, or False. The newest is called."""

    call: Callback | Literal[False]
    holder: weakref.ref[_Block]
    is_block: bool = False

    @property
    def is_for_good(self) -> bool:
        """Whether no `with` statement will end it."""
        return not self.is_block and self.holder() is None


class _Block:
    """Ends at the end of a `with` block what began before it. Without one it holds on."""

    def __init__(self, call: Callback | Literal[False]) -> None:
        self._listening = _Listening(call, weakref.ref(self))
        with _lock:
            # Of those that nothing ends the last one may be told again.
            for old in [listening for listening in _listening if listening.is_for_good][:-1]:
                _listening.remove(old)
            _listening.append(self._listening)
            _tell_newest()

    def __enter__(self) -> None:
        self._listening.is_block = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            if self._listening in _listening:
                _listening.remove(self._listening)
            _tell_newest()
        if isinstance(self._listening.call, _Bars):
            self._listening.call.close()


def _newest() -> Callback | None:
    # A copy: another thread may change the list.
    newest = _listening[-1:]
    call: Callback | Literal[False] = newest[0].call if newest else False
    return None if call is False else call


def _tell_newest() -> None:
    call = _newest()
    _deltic.listen_to_progress(None if call is None else _told(call))


def progress(to: bool | Callback = True) -> _Block:
    """Show how far long work has come, or have a function told of it.

    Arguments:
        to: True shows bars on a terminal and in a notebook, by `tqdm` if it is there (`pip install deltic[progress]`),
            and writes a line to stderr now and then elsewhere. A function is called with a `Progress`. False ends
            either.

    It holds for the process, in all threads, until it is called again; in a `with` statement until the end of the
    block, after which no call of it begins. Of several the newest is told. `optimize`, `purge`, `vacuum`, `restore`,
    `clone`, `convert`, `repair`, `checkpoint`, writing rows, `delete`, `update` and `merge` report, the last three of
    the files that they search and then of the rows that they change. What the executors of Spark do for `deltic.spark`
    is reported as their tasks end. Without a listener nothing is slower.

    A function is called by the thread that called deltic, while that waits: at most ten times a second for each piece
    of work, and once when it ends, so that short work is reported too. It may use deltic, which reports nothing of
    that. An `Exception` that it raises goes to `sys.unraisablehook`; the work goes on, and the function hears no more
    of it. While the interpreter ends nothing is called on daemon threads. To stop the work let it raise
    `KeyboardInterrupt`, which does what Ctrl-C does.

    Raises `InvalidInputError` for anything else.

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
        shows = flag(to, "to")
    except InvalidInputError:
        kind = to.__class__.__name__
        message = f"progress takes True, False or a function of a deltic.Progress, not {kind}"
        raise InvalidInputError(message) from None
    return _Block(_Bars() if shows else False)


def _told(call: Callback) -> Callable[[int, str, str, int, int | None, bool], object]:
    def tell(id: int, operation: str, unit: str, done: int, total: int | None, ended: bool) -> None:
        _call(call, Progress(operation, unit, done, total, ended, id))

    return tell


def _is_calling() -> bool:
    return getattr(_calling, "process", None) == os.getpid()


def _call(call: Callback, report: Progress) -> None:
    """Call a function with a report, unless this thread does so already: what the function does is not reported."""
    if _is_calling():
        return
    _calling.process = os.getpid()
    try:
        call(report)
    finally:
        _calling.process = None


class Work:
    """A piece of work that Python counts, in a `with` statement: reported by the rules that the core's work has."""

    def __init__(self, operation: str, unit: str, total: int | None = None) -> None:
        """Begin it; the arguments are those of `Progress`."""
        self._report = Progress(operation, unit, 0, total, False, next(_IDS))
        self._has_reported = False
        self.done = 0
        self.is_watched = _newest() is not None and not _is_calling()
        """Whether somebody wants to know."""

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(ended=True)

    def report(self) -> None:
        """Tell how much is done, if that is news; every `BETWEEN_REPORTS` at most."""
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
    """Hands an exception to `sys.unraisablehook`, as the interpreter does with one that a destructor raises."""

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
    """The class of bars, or None where there is none to be had, or nowhere to show one."""
    # With a kernel that has no widgets, `auto` writes text.
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
        """Leave nothing open, and show nothing more."""
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
            # What the line before had more is written over.
            _write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            _write(text + "\n")
            self._next = now + _BETWEEN_LINES

    def close(self) -> None:
        if self._is_terminal and self._has_any:
            _write("\n")


def _write(text: str) -> None:
    # `print` would take stdout where there is no stderr.
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.write(text)
        sys.stderr.flush()
