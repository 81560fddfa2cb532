"""Processes that write to a table, and report each acknowledged write through a pipe.

Messages of a killed process stay in the pipe. Each message is one write to the pipe, which is atomic.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any, Literal, NamedTuple

import pyarrow as pa

import deltic

SCHEMA = pa.schema([("id", pa.string()), ("number", pa.int64()), ("part", pa.string())])

# A fork server: processes inherit no threads or handles of the tests, and need not import the packages again.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["writers", "deltic", "pyarrow"])


class Committed(NamedTuple):
    """A message about an acknowledged commit. `kept` and `removed` are the ids of rows that it added and removed."""

    version: int
    attempts: int
    seconds: float
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Refused(NamedTuple):
    """A message about a commit that raised an error."""

    ids: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class Work:
    """The arguments of one process."""

    uri: str
    name: str
    commits: int
    part: str = "shared"
    storage_options: dict[str, str] | None = None
    how: Literal["path", "handle", "transaction"] = "path"
    seed: int = 0
    # Maximum pause between two commits, in seconds.
    pause: float = 0


def event() -> Event:
    """An event shared by all processes."""
    return _context.Event()


def numbers(work: Work, more: Event | None) -> Iterator[int]:
    """Number the commits of a process, with a pause before each: `work.commits`, then slower while `more` is set."""
    chosen = random.Random(work.name)
    for number in itertools.count():
        if number >= work.commits and (more is None or not more.is_set()):
            return
        time.sleep(chosen.random() * work.pause * (1 if number < work.commits else 5))
        yield number


def row(name: str, number: int, part: str) -> pa.Table:
    return pa.table({"id": [f"{name}-{number}"], "number": [number], "part": [part]}, schema=SCHEMA)


class Running(NamedTuple):
    work: Work
    process: BaseProcess
    pipe: Connection

    def everything(self) -> list[Any]:
        """All messages until the process ends."""
        messages = []
        while True:
            try:
                messages.append(self.pipe.recv())
            except EOFError:
                return messages


Tell = Callable[[Any], None]
Does = Callable[[Work, Iterator[int], Tell], None]


def _run(does: Does, work: Work, gate: Any, more: Event | None, pipe: Connection) -> None:
    gate.wait(120)
    does(work, numbers(work, more), pipe.send)


@contextmanager
def running(works: list[tuple[Does, Work]], more: Event | None = None) -> Iterator[list[Running]]:
    """Start processes together at the beginning of the block, and kill those that still run at its end."""
    gate = _context.Barrier(len(works) + 1)
    started = []
    for does, work in works:
        ours, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_run, args=(does, work, gate, more, theirs), daemon=True)
        process.start()
        theirs.close()
        started.append(Running(work, process, ours))
    try:
        gate.wait(120)
        yield started
    finally:
        for one in started:
            one.process.kill()
            one.process.join()
            one.pipe.close()


# --- kinds of writers ---


def append(work: Work, numbers: Iterator[int], tell: Tell) -> None:
    """Append rows one by one. An error ends the process."""
    table = deltic.Table(work.uri, work.storage_options)
    for number in numbers:
        data = row(work.name, number, work.part)
        (id,) = data["id"].to_pylist()
        began = time.perf_counter()
        if work.how == "transaction":
            with table.transaction(operation="WRITE", user_metadata=id) as transaction:
                transaction.append(data)
            commit = transaction.committed
            assert commit is not None
        else:
            place = table if work.how == "handle" else work.uri
            commit = deltic.write(place, data, user_metadata=id, storage_options=_options(work))
        tell(Committed(commit.version, commit.attempts, time.perf_counter() - began, (id,)))


def _options(work: Work) -> dict[str, str] | None:
    return work.storage_options if work.how == "path" else None


def append_by_deltalake(work: Work, numbers: Iterator[int], tell: Tell) -> None:
    """Append by delta-rs, which sometimes gives up, and compact the part's small files."""
    import deltalake
    from deltalake.exceptions import CommitFailedError

    for number in numbers:
        data = row(work.name, number, work.part)
        (id,) = data["id"].to_pylist()
        began = time.perf_counter()
        properties = deltalake.CommitProperties(custom_metadata={"userMetadata": id})
        try:
            deltalake.write_deltalake(work.uri, data, mode="append", commit_properties=properties)
            tell(Committed(-1, 0, time.perf_counter() - began, (id,)))
            if number % 10 == 9:
                deltalake.DeltaTable(work.uri).optimize.compact([("part", "=", work.part)])
        except CommitFailedError as error:
            tell(Refused((id,), str(error)))


def rewrite(work: Work, numbers: Iterator[int], tell: Tell) -> None:
    """Read a part, remove its files and write its rows again, while others append to it."""
    table = deltic.Table(work.uri, work.storage_options)
    filter = f"part = '{work.part}'"
    for _ in numbers:
        began = time.perf_counter()
        try:
            with table.transaction(operation="REWRITE") as transaction:
                rows = transaction.scan(filter=filter).to_arrow()
                transaction.remove(filter)
                transaction.append(rows)
        except deltic.CommitConflictError as error:
            tell(Refused((), type(error).__name__))
            continue
        commit = transaction.committed
        assert commit is not None, "the part always has rows"
        tell(Committed(commit.version, commit.attempts, time.perf_counter() - began))


def all_kinds(work: Work, numbers: Iterator[int], tell: Tell) -> None:
    """Make commits of every kind until killed."""
    table = deltic.Table(work.uri, work.storage_options)
    chosen = random.Random(work.seed)
    live: list[str] = []
    for number in numbers:
        data = row(work.name, number, work.part)
        (id,) = data["id"].to_pylist()
        kind = chosen.choice(["path", "handle", "several", "replace"])
        began = time.perf_counter()
        gone: tuple[str, ...] = ()
        if kind == "path":
            commit = deltic.write(work.uri, data, user_metadata=id, storage_options=work.storage_options)
        elif kind == "handle":
            commit = deltic.write(table, data, user_metadata=id)
        else:
            gone = tuple(live) if kind == "replace" else ()
            with table.transaction(operation=kind.upper(), user_metadata=id) as transaction:
                if gone:
                    transaction.remove(f"part = '{work.part}'")
                transaction.append(data.slice(0, 0))
                transaction.append(data)
            assert transaction.committed is not None
            commit = transaction.committed
        live = [id] if gone else [*live, id]
        tell(Committed(commit.version, commit.attempts, time.perf_counter() - began, (id,), gone))
