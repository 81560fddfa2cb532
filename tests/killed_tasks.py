"""Spark tasks that write their files and then kill their own process, or the executor that runs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

Tasks = Iterator[pa.RecordBatch]

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
"""The class that an executor of a cluster runs."""


def own_executor() -> int:
    """The process id of the executor that runs this task: an ancestor of this process. Linux only."""
    pid = os.getpid()
    while EXECUTOR not in command(pid):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def command(pid: int) -> list[str]:
    """The command line of a process. Linux only."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")


def dying(
    plain: Callable[..., Callable[[Tasks], Tasks]], marker: Path, deaths: int, victim: Callable[[], int] = os.getpid
) -> Callable[..., Any]:
    """Wrap `plain`, which returns the function that executes tasks: `deaths` times a process is killed at the end.

    With more than one death, the tasks of one partition write and are killed. All others do nothing: if they wrote,
    they might do so after the job has failed and deleted its files.

    `marker`: a folder in which each killed process leaves a file, so that later attempts can count the deaths.
    `victim`: which process is killed, by default the task's own.
    """
    chosen = marker / "chosen partition"

    # Not a function of this module, which executors cannot import.
    def is_chosen() -> bool:
        mine = str(TaskContext.get().partitionId())
        try:
            chosen.symlink_to(mine)
        except FileExistsError:
            return os.readlink(chosen) == mine
        return True

    def changed(*arguments: Any) -> Callable[[Tasks], Tasks]:
        carry_out = plain(*arguments)

        def dies(tasks: Tasks) -> Tasks:
            first = list(islice(tasks, 1))
            if deaths > 1 and not (first and is_chosen()):
                return
            done = list(carry_out(chain(first, tasks)))
            if deaths > 1 and not done:
                chosen.unlink()
            for death in range(deaths if done else 0):
                try:
                    (marker / f"death {death}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(victim(), signal.SIGKILL)
                # Spark ends the Python processes of an executor that is gone.
                signal.pause()
            yield from done

        return dies

    return changed
