"""A disk that is full at any page of an operation: the table keeps its version, and the operation can be repeated.

An operation runs many times on a small disk of its own, with more free space each time, until there is enough.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import deltic

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
SIZE_MB = 8
PAGE = 4096
"""What a disk in memory hands out: a file of one byte takes a page."""
Operation = Callable[[deltic.Table], object]


class Disk:
    """A disk in memory, whose free space can be set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = folder / "ballast"

    def leave(self, pages: int) -> None:
        """Fill the disk, except for so many pages."""
        self.release()
        with self.ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                file.truncate(file.tell() - pages * PAGE)

    def release(self) -> None:
        self.ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "none", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@cache
def texts(count: int) -> list[str]:
    """Texts that do not get smaller by compression: 24 to a page."""
    made = random.Random(count)
    return [made.randbytes(170).hex() for _ in range(count)]


def source(first: int, count: int, partitions: int = 1) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "p": [id % partitions for id in ids], "t": texts(count)})


def merge(table: deltic.Table) -> object:
    builder = table.merge(source(20, 40), "source.id = target.id").when_matched_update_all()
    return builder.when_not_matched_insert_all().execute()


WRITES: dict[str, Operation] = {
    "append": lambda table: deltic.write(table, source(100, 200)),
    "append of much": lambda table: deltic.write(table, source(100, 15_000)),
    "overwrite": lambda table: deltic.write(table, source(100, 20), mode="overwrite"),
    "many partitions": lambda table: deltic.write(table, source(100, 30, 15)),
    "compaction": lambda table: table.optimize(),
    "z-order": lambda table: table.optimize(zorder_by=["id"]),
    "new column": lambda table: table.add_columns(deltic.field("c", "string")),
    "restore": lambda table: table.restore(0),
}
ROW_CHANGES: dict[str, Operation] = {
    "delete": lambda table: table.delete("id % 7 = 3"),
    "update": lambda table: table.update({"t": "'x'"}, "id % 7 = 3"),
    "merge": merge,
}
CASES = [pytest.param(run, False, id=name) for name, run in {**WRITES, **ROW_CHANGES}.items()]
CASES += [pytest.param(run, True, id=f"{name} by vectors") for name, run in ROW_CHANGES.items()]


def filled(place: Path, vectors: bool = False) -> deltic.Table:
    properties = {"delta.enableDeletionVectors": str(vectors).lower(), "delta.enableChangeDataFeed": "true"}
    for first in range(0, 60, 20):
        deltic.write(place, source(first, 20), partition_by=["p"], properties=properties if first == 0 else None)
    return deltic.Table(place)


def rows(table: deltic.Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().select(["id", "p", "t"]).sort_by("id").to_pylist()


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "ballast")


def failure_of(run: Callable[[], object]) -> str | None:
    try:
        run()
    except deltic.StorageError as error:
        return str(error)
    return None


def check_full(disk: Disk, run: Callable[[], object], is_untouched: Callable[[], bool]) -> None:
    """Run an operation with more and more free space until it succeeds; see what each failure leaves."""
    pages = 0
    while pages < SIZE_MB * (1 << 20) // PAGE:
        disk.leave(pages)
        message = failure_of(run)
        disk.release()
        if message is None:
            assert pages > 0
            return
        assert str(disk.folder) in message, pages
        assert "is full; free some space and try again" in message, pages
        assert "No space left on device" in message, pages
        assert is_untouched(), pages
        pages += 1 + pages // 4
    pytest.fail("the operation never has enough space")


@pytest.mark.parametrize(("run", "vectors"), CASES)
def test_a_full_disk_leaves_the_table_as_it_is(disk: Disk, tmp_path: Path, run: Operation, vectors: bool) -> None:
    plenty = filled(tmp_path / "plenty", vectors)
    run(plenty)
    table = filled(disk.folder / "table", vectors)
    before = rows(table)
    last = table.snapshot().version
    files_before = files(disk.folder)

    def is_untouched() -> bool:
        again = deltic.Table(table.uri)
        assert table.snapshot().version == again.snapshot().version == last
        return rows(table) == rows(again) == before and files(disk.folder) == files_before

    check_full(disk, lambda: run(table), is_untouched)
    assert table.snapshot().version == plenty.snapshot().version
    assert rows(table) == rows(deltic.Table(table.uri)) == rows(plenty)
    # A checksum or a hint for which there was no space is no error.
    assert not [
        found for found in table.check(files=True).findings if found.kind not in ("checksum", "last_checkpoint")
    ]
    deltic.write(table, source(500, 1))
    assert table.check(files=True).ok


def test_a_copy_continues_when_there_is_space(disk: Disk, tmp_path: Path) -> None:
    """Files that a deep clone has copied stay, and the next clone takes them; none of them is a part of a file."""
    origin = filled(tmp_path / "origin")
    target = deltic.Table(disk.folder / "copy")

    def is_resumable() -> bool:
        copied = [path.relative_to(target.uri) for path in files(disk.folder)]
        return not target.exists() and all(
            Path(target.uri, path).read_bytes() == Path(origin.uri, path).read_bytes() for path in copied
        )

    check_full(disk, lambda: origin.clone(target, shallow=False), is_resumable)
    assert rows(target) == rows(origin)
    assert len(list(Path(target.uri).rglob("*.parquet"))) == origin.snapshot().num_files
    assert target.check(files=True).ok


def test_a_full_disk_leaves_no_part_of_a_new_table(disk: Disk) -> None:
    table = deltic.Table(disk.folder / "table")
    check_full(disk, lambda: deltic.write(table, source(0, 50)), lambda: not files(disk.folder))
    assert rows(table) == source(0, 50).to_pylist()


def test_a_full_disk_leaves_no_part_of_a_checkpoint(disk: Disk) -> None:
    table = filled(disk.folder / "table")
    before = files(disk.folder)

    def is_whole() -> bool:
        # A checkpoint for whose hint there is no space is whole, and stays.
        for path in set(files(disk.folder)) - set(before):
            assert path.name == f"{2:020}.checkpoint.parquet"
            assert {found.kind for found in table.check(files=True).findings} <= {"last_checkpoint"}
            path.unlink()
        return rows(deltic.Table(table.uri)) == rows(table)

    check_full(disk, lambda: table.checkpoint(), is_whole)
    assert table.check(files=True).ok


def test_a_vacuum_needs_space_for_its_first_commit_only(disk: Disk) -> None:
    table = filled(disk.folder / "table")
    table.delete("id >= 0")
    before = files(disk.folder)
    check_full(disk, lambda: table.vacuum(0, force=True), lambda: files(disk.folder) == before)
    assert not list(Path(table.uri).rglob("*.parquet"))
    deltic.write(table, source(500, 1))
    assert rows(table) == source(500, 1).to_pylist()


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_vacuum_without_log_needs_no_space(disk: Disk, mode: Literal["full", "lite"]) -> None:
    table = filled(disk.folder / "table")
    table.delete("id >= 0")
    version = table.snapshot().version
    disk.leave(0)
    with pytest.raises(deltic.StorageError, match="no file was deleted; with log=False a vacuum needs no space"):
        table.vacuum(0, force=True, mode=mode)
    assert table.vacuum(0, force=True, mode=mode, log=False).files_deleted > 0
    assert not list(Path(table.uri).rglob("*.parquet"))
    disk.leave(0)
    assert table.vacuum(0, force=True, mode=mode, log=False).files_deleted == 0
    disk.release()
    assert table.snapshot().version == deltic.Table(table.uri).snapshot().version == version
    assert table.check(files=True).ok


def test_a_disk_that_only_reads(disk: Disk) -> None:
    table = filled(disk.folder / "table")
    before = rows(table), files(disk.folder)
    subprocess.run(["mount", "-o", "remount,ro", str(disk.folder)], check=True)
    for run in (*WRITES.values(), *ROW_CHANGES.values(), lambda table: table.vacuum(0, force=True)):
        with pytest.raises(deltic.StorageError, match=f"{disk.folder}.* is read-only"):
            run(table)
    assert (rows(table), files(disk.folder)) == before
