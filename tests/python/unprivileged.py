"""Folders that may not be written. Root may write everywhere, so a process that has its rights gives them up."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIVE_UP = """
import os, sys

def give_up_rights():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
"""


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may open, unlike those of pytest."""
    root = Path(tempfile.mkdtemp())
    try:
        root.chmod(0o755)
        yield root
    finally:
        for folder in (path for path in root.rglob("*") if path.is_dir()):
            folder.chmod(0o700)
        shutil.rmtree(root)


def run(program: str, *arguments: str) -> str:
    """Run a program, which calls `give_up_rights()` after it has imported what it needs; return its output."""
    command = [sys.executable, "-c", GIVE_UP + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
