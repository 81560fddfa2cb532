"""The floor: the least that the bytes of a case cost on this machine, with Arrow C++ on every processor.

The floor of a plan reads and decompresses the pages that the filter needs, then those of the tasks, without decoding
or keeping them, and reads the commits without parsing them. For a listing of all files the columns are also decoded and
kept. Nothing is joined, compared or checked.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pages
import plain
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
import writers
from job import Answer, Job, add_a_commit, copy_of_log

TASK = ["add.path", "add.size", "add.modificationTime"]
VECTOR = "add.deletionVector"
FRESH = 100_000_000
PAGE = 4_096
# Arrow reads the fields of a struct, such as all columns of `add`, on one thread. So row groups are read in parallel.
THREADS = ThreadPoolExecutor(os.cpu_count())


def _groups(paths: list[Path]) -> Iterator[tuple[Path, pq.FileMetaData, int]]:
    for path in paths:
        footer = pq.read_metadata(path)
        yield from ((path, footer, group) for group in range(footer.num_row_groups))


def _read(paths: list[Path], columns: list[str]) -> list[pa.Table]:
    def read(place: tuple[Path, pq.FileMetaData, int]) -> pa.Table:
        path, footer, group = place
        return pq.ParquetFile(path, metadata=footer).read_row_group(group, columns, use_threads=False)

    return list(THREADS.map(read, _groups(paths)))


def _tail(log: Path, after: int) -> list[Path]:
    return [path for path in log.glob("*.json") if path.stem.isdigit() and int(path.stem) > after]


def _vectors(paths: list[Path]) -> list[str]:
    """The column of deletion vectors, unless the footer shows that no file has one."""
    groups = (footer.row_group(place) for _, footer, place in _groups(paths))
    leaves = ((group, group.column(number)) for group in groups for number in range(group.num_columns))
    members = ((group, leaf) for group, leaf in leaves if leaf.path_in_schema == f"{VECTOR}.pathOrInlineDv")
    return [VECTOR] if any(leaf.statistics.null_count < group.num_rows for group, leaf in members) else []


def _filter_columns(job: Job) -> list[str]:
    """The columns of the checkpoint that a filter needs."""
    column = job.question.column
    if job.by_day:
        return [f"add.partitionValues_parsed.{column}"] if job.typed else ["add.partitionValues"]
    return [f"add.stats_parsed.{side}.{column}" for side in ("minValues", "maxValues")] if job.typed else ["add.stats"]


def open_table(job: Job) -> Iterator[Answer | None]:
    _, paths = plain.last_checkpoint(Path(job.uri, "_delta_log"))
    yield None
    yield {"row_groups": sum(pq.read_metadata(path).num_row_groups for path in paths)}


def list_files(job: Job) -> Iterator[Answer | None]:
    log = Path(job.uri, "_delta_log")
    version, paths = plain.last_checkpoint(log)
    tail = _tail(log, version)
    columns = [*TASK, "add.partitionValues", *_vectors(paths)]
    yield None
    tasks = _read(paths, columns)
    commits = [path.read_bytes() for path in tail]
    yield None
    found = [pc.count(pc.struct_field(table["add"], "path")).as_py() for table in tasks]
    assert sum(found) == job.files, f"{sum(found)} files in the checkpoint instead of {job.files}"
    yield {"commits": len(commits)}


def plan(job: Job) -> Iterator[Answer | None]:
    log = Path(job.uri, "_delta_log")
    version, paths = plain.last_checkpoint(log)
    tail = _tail(log, version)
    first, then = (
        [chunk for path in paths for chunk in pages.chunks(path, columns)]
        for columns in (_filter_columns(job), [*TASK, *_vectors(paths)])
    )
    yield None
    started = time.perf_counter()
    decompressed = pages.decompress(first, THREADS)
    filter_us = round((time.perf_counter() - started) * 1e6)
    decompressed += pages.decompress(then, THREADS)
    commits = [path.read_bytes() for path in tail]
    yield None
    assert decompressed == sum(size for chunk in [*first, *then] for _, _, size in chunk.pages), "pages are missing"
    yield {"commits": len(commits), **({"filter_us": filter_us} if paths else {})}


def plan_uncached(job: Job) -> Iterator[Answer | None]:
    yield from plan(job)


def refresh(job: Job) -> Iterator[Answer | None]:
    """List the log and read its newest commit."""
    uri = copy_of_log(job)
    add_a_commit(uri, job)
    yield None
    newest = max(entry.path for entry in os.scandir(Path(uri, "_delta_log")) if entry.name.endswith(".json"))
    yield {"commit_bytes": len(Path(newest).read_bytes())}


def checkpoint(job: Job) -> Iterator[Answer | None]:
    """Write the content of the last checkpoint, already decoded, with delta-spark's compression."""
    _, paths = plain.last_checkpoint(Path(job.uri, "_delta_log"))
    (table,) = [pq.read_table(path) for path in paths]
    if job.typed:
        table = _with_typed_statistics(table)
    threads = os.cpu_count() or 1
    rows = -(-table.num_rows // threads)

    def write(thread: int) -> None:
        part = job.scratch / f"part-{thread}.parquet"
        pq.write_table(table.slice(thread * rows, rows), part, row_group_size=100_000, compression="snappy")

    yield None
    list(THREADS.map(write, range(threads)))
    yield {"rows_written": table.num_rows}


def _with_typed_statistics(table: pa.Table) -> pa.Table:
    """Add typed statistics, parsed from the JSON, to the actions."""
    place = table.schema.get_field_index("add")
    chunks = []
    for adds in table["add"].chunks:
        lines = "\n".join(text or "{}" for text in pc.struct_field(adds, "stats").to_pylist())
        stats = pa.json.read_json(BytesIO(lines.encode())).to_struct_array().combine_chunks()
        fields = [*adds.type, pa.field("stats_parsed", stats.type)]
        columns = [*(adds.field(number) for number in range(adds.type.num_fields)), stats]
        chunks.append(pa.StructArray.from_arrays(columns, fields=fields, mask=adds.is_null()))
    return table.set_column(place, "add", pa.chunked_array(chunks))


def every_column(job: Job) -> Iterator[Answer | None]:
    """Decode all statistics without parsing them; keep the paths, which every reader needs."""
    _, paths = plain.last_checkpoint(Path(job.uri, "_delta_log"))
    yield None
    decoded = _read(paths, [*TASK, "add.partitionValues", "add.stats"])
    yield None
    names = [pc.struct_field(table["add"], "path") for table in decoded]
    yield {"path_bytes": sum(pc.sum(pc.binary_length(chunk)).as_py() or 0 for name in names for chunk in name.chunks)}


# --- commits ---


def _appends(job: Job, rows: pa.Table, times: int, *, synced: bool) -> Iterator[Answer | None]:
    """Write a data file and a commit, both already encoded, one after the other."""
    append = _append(job, rows, synced=synced)
    yield None
    for _ in range(times):
        append()
    yield {"done": times}


def _append(job: Job, rows: pa.Table, *, synced: bool) -> Callable[[], None]:
    data = BytesIO()
    pq.write_table(rows, data)
    commit = b"{" + b" " * 600 + b"}"
    folder = job.scratch / "floor"
    folder.mkdir()
    done = iter(range(10**9))

    def append() -> None:
        place = next(done)
        for suffix, content in (("parquet", data.getvalue()), ("json", commit)):
            with (folder / f"{place:020}.{suffix}").open("xb") as file:
                file.write(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())

    return append


def append_by_path(job: Job) -> Iterator[Answer | None]:
    yield from _appends(job, writers.TINY, writers.APPENDS, synced=True)


def append_by_path_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from _appends(job, writers.TINY, writers.APPENDS, synced=False)


def append_by_handle(job: Job) -> Iterator[Answer | None]:
    yield from append_by_path(job)


def append_by_handle_unsynced(job: Job) -> Iterator[Answer | None]:
    yield from append_by_path_unsynced(job)


def append_long(job: Job) -> Iterator[Answer | None]:
    append = _append(job, writers.TINY, synced=True)
    yield None
    yield writers.timed_appends(append)


def append_to_large(job: Job) -> Iterator[Answer | None]:
    yield from _appends(job, writers.AN_EVENT, 1, synced=True)


def append_to_large_by_handle(job: Job) -> Iterator[Answer | None]:
    yield from append_to_large(job)


# --- the machine itself ---


def fresh_memory(job: Job) -> Iterator[Answer | None]:
    """Touch each page of new memory once."""
    yield None
    memory = np.empty(FRESH, np.uint8)
    memory[::PAGE] = 1
    yield {"pages": int(memory[::PAGE].sum(dtype=np.int64))}


def synced_file(job: Job) -> Iterator[Answer | None]:
    """Write one page to a file and sync it."""
    yield None
    with (job.scratch / "page").open("xb") as file:
        file.write(bytes(PAGE))
        file.flush()
        os.fsync(file.fileno())
    yield {"file_bytes": PAGE}
