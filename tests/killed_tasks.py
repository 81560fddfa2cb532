"""Spark tasks that write their files and then kill their own process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

Tasks = Iterator[pa.RecordBatch]


def dying(plain: Callable[..., Callable[[Tasks], Tasks]], marker: Path, deaths: int) -> Callable[..., Any]:
    """Wrap `plain`, which returns the function that executes tasks: `deaths` times the process is killed at the end.

    `marker`: a folder in which each killed process leaves a file, so that later attempts can count the deaths.
    """

    def changed(*arguments: Any) -> Callable[[Tasks], Tasks]:
        carry_out = plain(*arguments)

        def dies(tasks: Tasks) -> Tasks:
            done = list(carry_out(tasks))
            for death in range(deaths if done else 0):
                try:
                    (marker / f"death {death}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
            yield from done

        return dies

    return changed
