"""Fixtures of the Python tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Where a test's table goes; nothing is there yet."""
    return str(tmp_path / "table")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter, for tests that need a process of their own."""
    return sys.executable


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder
