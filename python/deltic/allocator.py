"""How soon the Rust core's allocator gives memory back to the system.

Left alone it waits a second, in which a plan or a checkpoint asks for far more memory than it has in use at any time;
to give it back at once would cost time, for the system clears what it hands out again. The allocator reads its settings
from the environment when it is loaded, and nowhere else; a setting that is there is left as it is.
"""

import importlib
import os
from typing import Final

SETTING: Final = "MIMALLOC_PURGE_DELAY"
MILLISECONDS: Final = 60


def load() -> None:
    """Loads the Rust core, the first time; processes that are started later see the environment as it was."""
    if SETTING in os.environ:
        return
    os.environ[SETTING] = str(MILLISECONDS)
    try:
        importlib.import_module("deltic._deltic")
    finally:
        del os.environ[SETTING]


load()
