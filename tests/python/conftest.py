"""Fixtures of the Python tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """The path of a test's table, which does not exist yet."""
    return str(tmp_path / "table")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter, for tests that start processes."""
    return sys.executable


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, TMPDIR, for one test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder
