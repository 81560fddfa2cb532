"""The tables of the benchmarks by name: logs of many files, and the tables of `work_tables`."""

from collections.abc import Callable
from pathlib import Path

import built
import logs
import numpy as np
import pyarrow as pa
import work_tables

SIZES = {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "5m": 5_000_000}
SHAPES: dict[str, Callable[[int], logs.Shape]] = {
    "json": logs.Shape,
    "typed": lambda files: logs.Shape(files, "typed"),
    "both": lambda files: logs.Shape(files, "both"),
    "zstd": lambda files: logs.Shape(files, compression="zstd"),
    "vectors": lambda files: logs.Shape(files, deletion_vectors=True),
    "sidecars": lambda files: logs.Shape(files, "both", v2=True),
}
# Version and number of files of the table without a checkpoint.
COMMITS, FILES_OF_COMMITS = 1_000, 100_000


def _sidecars(uri: str, shape: logs.Shape) -> None:
    """A table with deltic's V2 checkpoint instead of the classic one, and the hundred commits after it."""
    import deltic

    logs.checkpointed(uri, shape)
    log = Path(uri, "_delta_log")
    aside = log.with_name("later")
    aside.mkdir()
    for commit in sorted(log.glob("*.json"))[1:]:
        commit.rename(aside / commit.name)
    (classic,) = log.glob("*.checkpoint.parquet")
    written = classic.stat().st_mtime_ns
    deltic.Table(uri).checkpoint()
    if not list(log.glob("_sidecars/*.parquet")):
        raise built.UnavailableError("this deltic writes its V2 checkpoints without sidecars")
    if classic.stat().st_mtime_ns == written:
        classic.unlink()
    for commit in sorted(aside.iterdir()):
        commit.rename(log / commit.name)
    aside.rmdir()


def rows(count: int) -> pa.Table:
    """Deterministic rows with numbers, strings and a partition column."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "part": pa.array(np.arange(count) * 8 // count, pa.int32()),
            "id": np.arange(count),
            "price": random.normal(100, 25, count).round(2),
            "place": pa.array(np.char.add("place ", random.integers(0, 5000, count).astype(str))),
        }
    )


def _rows(uri: str, count: int) -> None:
    import deltic

    table = rows(count)
    step = -(-count // 16)
    for start in range(0, count, step):
        deltic.write(uri, table.slice(start, step), partition_by=["part"])


def _build(name: str, uri: str) -> None:
    kind, _, size = name.rpartition("_")
    if name == "commits":
        logs.commits_only(uri, logs.Shape(FILES_OF_COMMITS), COMMITS)
    elif kind == "rows":
        _rows(uri, {"100k": 100_000, "5m": 5_000_000}[size])
    elif kind == "sidecars":
        _sidecars(uri, SHAPES[kind](SIZES[size]))
    else:
        logs.checkpointed(uri, SHAPES[kind](SIZES[size]))


def is_of_rows(name: str) -> bool:
    """Whether the table is one of `work_tables`."""
    return work_tables.kind_of(name) in work_tables.KINDS


def files(name: str) -> int:
    """The number of live files of a table that has only a log; 0 for others."""
    if name == "commits":
        return FILES_OF_COMMITS
    return 0 if name.startswith("rows") or is_of_rows(name) else SIZES[name.rpartition("_")[2]]


def table(name: str) -> str:
    """The location of a table, which is built if needed. The same name is always the same table."""
    return work_tables.table(name) if is_of_rows(name) else built.table(name, _build, __file__, logs.__file__)
