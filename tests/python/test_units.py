"""Sizes and durations as numbers and as strings with units, in all arguments that take them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltic
from deltic.cli import main

SIZES = {"128MB": 128 << 20, "1 GB": 1 << 30, "16 kib": 16 << 10, " 5 ": 5, "7b": 7, "2T": 2 << 40, "3m": 3 << 20}
NO_SIZES = ["", "MB", "1.5 GB", "-1 MB", "0", "0 MB", "1 XB", "1 MB 2", "\uff11MB", "9999999 TB", "9" * 30]
LENGTHS = {
    "7 days": timedelta(days=7),
    "1 week": timedelta(days=7),
    "168 hours": timedelta(days=7),
    "168": timedelta(days=7),
    "1.5": timedelta(minutes=90),
    "interval 1 WEEK 12 hours": timedelta(days=7, hours=12),
    "90minutes": timedelta(minutes=90),
    "0.5 days": timedelta(hours=12),
    "1 second 5 milliseconds": timedelta(seconds=1, milliseconds=5),
}
NO_LENGTHS = [
    "",
    "week",
    "7 dayz",
    "-7 days",
    "1 month",
    "1 year",
    "7 days ago",
    "interval",
    "1e3 days",
    "9" * 30,
    "\u0667 days",
]


@pytest.fixture
def table(uri: str) -> deltic.Table:
    deltic.write(uri, pa.table({"v": [1, 2]}))
    return deltic.Table(uri)


@pytest.mark.slow
@pytest.mark.parametrize("text", SIZES)
def test_sizes(table: deltic.Table, text: str) -> None:
    assert table.optimize(target_file_size=text, dry_run=True).target_file_size == SIZES[text]
    assert table.layout(small_file_size=text).small_file_size == SIZES[text]


def test_a_size_with_units_equals_the_property(table: deltic.Table) -> None:
    table.set_properties({"delta.targetFileSize": "3mb"})
    by_property = table.optimize(dry_run=True).target_file_size
    assert by_property == table.optimize(target_file_size="3 MB", dry_run=True).target_file_size == 3 << 20


@pytest.mark.slow
def test_files_of_a_size(uri: str) -> None:
    rows = pa.table({"v": range(200_000)})
    deltic.write(uri, rows, target_file_size="64 kB", row_group_rows=10_000, compression="uncompressed")
    assert deltic.Table(uri).snapshot().num_files > 5


@pytest.mark.parametrize("text", NO_SIZES)
def test_invalid_sizes(table: deltic.Table, text: str) -> None:
    for call in (
        lambda: table.optimize(target_file_size=text),
        lambda: table.layout(small_file_size=text),
        lambda: deltic.write(table, pa.table({"v": [1]}), target_file_size=text),
    ):
        with pytest.raises(deltic.InvalidInputError, match="_size must be a number of bytes or a string such as"):
            call()
    assert table.snapshot().version == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", LENGTHS)
def test_durations(table: deltic.Table, text: str) -> None:
    assert table.vacuum(text, dry_run=True, force=True).retention == LENGTHS[text]


@pytest.mark.parametrize("text", NO_LENGTHS)
def test_invalid_durations(table: deltic.Table, text: str) -> None:
    with pytest.raises(deltic.InvalidInputError, match="retention must be a number of hours or a string such as"):
        table.vacuum(text, dry_run=True, force=True)


def test_a_duration_with_units_equals_the_property(table: deltic.Table) -> None:
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 1 week 12 hours"})
    assert table.vacuum(dry_run=True).retention == table.vacuum("interval 1 week 12 hours", dry_run=True).retention


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.slow
def test_the_command_line(table: deltic.Table, capsys: pytest.CaptureFixture[str]) -> None:
    uri = table.uri
    assert "files of 134.2 MB" in output(capsys, "optimize", uri, "--dry-run", "--target-file-size", "128 MB")[1]
    assert "files of 5 B" in output(capsys, "optimize", uri, "--dry-run", "--target-file-size", "5")[1]
    assert "below 1.0 kB" in output(capsys, "layout", uri, "--small-file-size", "1 k")[1]
    assert (
        '"retention_hours": 180.0'
        in output(capsys, "vacuum", uri, "--dry-run", "--json", "--retention", "1 week 12 hours")[1]
    )
    assert (
        '"retention_hours": 0.5'
        in output(capsys, "vacuum", uri, "--dry-run", "--json", "--force", "--retention", "0.5")[1]
    )
    code, message = output(capsys, "optimize", uri, "--target-file-size", "big")
    assert (code, message.startswith("deltic: --target-file-size must be a number of bytes or")) == (1, True)
    code, message = output(capsys, "vacuum", uri, "--retention", "long")
    assert (code, message.startswith("deltic: retention must be a number of hours or")) == (1, True)
    assert list(Path(uri, "_delta_log").glob("*1.json")) == []
