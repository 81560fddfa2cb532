"""A simple replay of a log with pyarrow and json, whose answers every engine must give.

It supports only what these tables have: one checkpoint (in one file or with sidecars) and the commits after it, paths
that need no decoding, and one partition column.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from job import Answer, Question

SIDES = ("minValues", "maxValues")
VECTOR = pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32()})
_KNOWN: dict[tuple[int, int, str, bool], pa.Table] = {}


def key(action: dict[str, Any]) -> str:
    """The identity of a logical file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    if vector is None:
        return str(action["path"])
    return f"{action['path']} {vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def commits(log: Path, after: int) -> Iterator[dict[str, Any]]:
    """The actions of the commits after a version, newest commit first."""
    for path in sorted(log.glob("*.json"), reverse=True):
        if path.stem.isdigit() and int(path.stem) > after:
            for line in path.read_text().splitlines():
                yield json.loads(line)


def last_checkpoint(log: Path) -> tuple[int, list[Path]]:
    """Version and files of the newest checkpoint, including sidecars."""
    found = sorted(log.glob("*.checkpoint*"), key=lambda path: path.name)
    if not found:
        return -1, []
    version = int(found[-1].name[:20])
    parts = [path for path in found if int(path.name[:20]) == version]
    sidecars: list[str] = []
    for part in parts:
        if part.suffix == ".json":
            actions = [json.loads(line) for line in part.read_text().splitlines()]
            sidecars += [action["sidecar"]["path"] for action in actions if "sidecar" in action]
        elif "sidecar" in pq.read_schema(part).names:
            rows = pq.read_table(part, columns=["sidecar"])["sidecar"].drop_null()
            sidecars += [row["path"] for row in rows.to_pylist()]
    parquet = [part for part in parts if part.suffix == ".parquet"]
    return version, parquet + [log / "_sidecars" / path for path in sidecars]


def _bounds(path: Path, column: str, typed: bool) -> pa.Table:
    """Minimum and maximum of a column for each data file in a checkpoint."""
    source = pq.ParquetFile(path)
    names = [f"add.stats_parsed.{side}.{column}" for side in SIDES] if typed else ["add.stats"]
    groups = []
    for group in range(source.num_row_groups):
        add = source.read_row_group(group, names)["add"].combine_chunks().drop_null()
        if typed:
            pair = [pc.struct_field(add, ["stats_parsed", side, column]) for side in SIDES]
        else:
            rows = [bounds_of(text, column) for text in pc.struct_field(add, "stats").to_pylist()]
            pair = [pa.array([row[place] for row in rows], pa.int64()) for place in (0, 1)]
        groups.append(pa.table(dict(zip(("low", "high"), pair, strict=True))))
    return pa.concat_tables(groups)


def checkpoint_rows(path: Path, column: str | None = None, *, typed: bool = False) -> pa.Table:
    """The adds of a checkpoint file: `path`, `size`, `day`, `key`, and a column's bounds as `low` and `high`."""
    file = pq.ParquetFile(path)
    if "add" not in file.schema_arrow.names:
        return None
    present = {field.name for field in file.schema_arrow.field("add").type}
    wanted = [name for name in ["path", "size", "partitionValues", "deletionVector"] if name in present]
    add = file.read([f"add.{name}" for name in wanted])["add"].combine_chunks().drop_null()
    table = pa.table({name: pc.struct_field(add, name) for name in wanted})
    day = pc.map_lookup(table["partitionValues"], "p_date", "first")
    name = table["path"]
    if "deletionVector" in present:
        fields = {field: pc.struct_field(table["deletionVector"], field) for field in VECTOR.names}
        identity = pc.binary_join_element_wise(" ", fields["storageType"], fields["pathOrInlineDv"], "")
        identity = pc.binary_join_element_wise(identity, fields["offset"].cast(pa.string()), "@")
        name = pc.binary_join_element_wise(name, pc.fill_null(identity, ""), "")
    table = table.select(["path", "size"]).append_column("day", day).append_column("key", name)
    if column is not None:
        # Cached by device and inode, since copies of a log link to the same files.
        status = path.stat()
        known = (status.st_dev, status.st_ino, column, typed)
        if known not in _KNOWN:
            _KNOWN[known] = _bounds(path, column, typed)
        bounds = _KNOWN[known]
        for side in ("low", "high"):
            table = table.append_column(side, bounds[side])
    return table


def replay(uri: str, column: str | None = None, *, typed: bool = False) -> tuple[pa.Table, list[dict[str, Any]]]:
    """The live files: those of the checkpoint that no later commit names, and those of the commits."""
    log = Path(uri, "_delta_log")
    version, paths = last_checkpoint(log)
    seen: set[str] = set()
    tail: list[dict[str, Any]] = []
    for action in commits(log, version):
        about = action.get("add") or action.get("remove")
        if about is not None and (name := key(about)) not in seen:
            seen.add(name)
            if "add" in action:
                tail.append(about)
    parts = [rows for path in paths if (rows := checkpoint_rows(path, column, typed=typed)) is not None]
    if not parts:
        empty = {"size": pa.int64(), "day": pa.string(), "low": pa.int64(), "high": pa.int64()}
        return pa.table({name: pa.array([], kind) for name, kind in empty.items()}), tail
    table = pa.concat_tables(parts)
    return table.filter(pc.invert(pc.is_in(table["key"], pa.array(sorted(seen), pa.string())))), tail


def bounds_of(stats: str | None, column: str) -> tuple[Any, Any]:
    """Minimum and maximum of a column, None if the statistics lack them."""
    parsed = {} if stats is None else json.loads(stats)
    return parsed.get(SIDES[0], {}).get(column), parsed.get(SIDES[1], {}).get(column)


def may_match(stats: str | None, question: Question) -> bool:
    low, high = bounds_of(stats, question.column)
    return low is None or high is None or (low <= question.high and high >= question.low)


def kept(uri: str, question: Question, typed: bool) -> Answer:
    """Number and bytes of the files that may match a question."""
    by_day = question.column == "p_date"
    table, tail = replay(uri, None if by_day else question.column, typed=typed)
    if by_day:
        mask = pc.equal(table["day"], question.low)
        tail = [add for add in tail if add["partitionValues"]["p_date"] == question.low]
    else:
        mask = pc.and_(pc.less_equal(table["low"], question.high), pc.greater_equal(table["high"], question.low))
        mask = pc.fill_null(mask, True)
        tail = [add for add in tail if may_match(add.get("stats"), question)]
    chosen = table.filter(mask)
    return {"files": chosen.num_rows + len(tail), "bytes": total(chosen["size"]) + sum(add["size"] for add in tail)}


def total(sizes: pa.ChunkedArray) -> int:
    return int(pc.sum(sizes).as_py() or 0)
