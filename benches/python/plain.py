"""A plain replay of a log with pyarrow and json: the floor without cleverness, and the answers the others must give.

It knows what these tables hold and no more: one checkpoint (in one file or with sidecars) and the commits after it,
paths that need no decoding, and one partition column.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from job import Answer, Question

VECTOR = pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32()})


def key(action: dict[str, Any]) -> str:
    """Identity of a logical file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    if vector is None:
        return str(action["path"])
    return f"{action['path']} {vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def commits(log: Path, after: int) -> Iterator[dict[str, Any]]:
    """Actions of the commits after a version, newest commit first."""
    for path in sorted(log.glob("*.json"), reverse=True):
        if path.stem.isdigit() and int(path.stem) > after:
            for line in path.read_text().splitlines():
                yield json.loads(line)


def last_checkpoint(log: Path) -> tuple[int, list[Path]]:
    """Version and files of the newest checkpoint; sidecars are files of it like any other."""
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


def checkpoint_rows(path: Path, columns: list[str]) -> pa.Table:
    """The adds of a checkpoint file: `path`, `size`, `day`, `key` and the columns asked for."""
    file = pq.ParquetFile(path)
    if "add" not in file.schema_arrow.names:
        return None
    present = {field.name for field in file.schema_arrow.field("add").type}
    wanted = [name for name in ["path", "size", "partitionValues", "deletionVector", *columns] if name in present]
    add = file.read([f"add.{name}" for name in wanted])["add"].combine_chunks().drop_null()
    table = pa.table({name: pc.struct_field(add, name) for name in wanted})
    day = pc.map_lookup(table["partitionValues"], "p_date", "first")
    name = table["path"]
    if "deletionVector" in present:
        fields = {field: pc.struct_field(table["deletionVector"], field) for field in VECTOR.names}
        identity = pc.binary_join_element_wise(" ", fields["storageType"], fields["pathOrInlineDv"], "")
        identity = pc.binary_join_element_wise(identity, fields["offset"].cast(pa.string()), "@")
        name = pc.binary_join_element_wise(name, pc.fill_null(identity, ""), "")
    return table.select(["path", "size", *columns]).append_column("day", day).append_column("key", name)


def replay(uri: str, columns: list[str]) -> tuple[pa.Table, list[dict[str, Any]]]:
    """The live files: those of the checkpoint that no later commit touches, and those of the commits."""
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
    parts = [rows for path in paths if (rows := checkpoint_rows(path, columns)) is not None]
    if not parts:
        empty = {"size": pa.array([], pa.int64()), "day": pa.array([], pa.string())}
        return pa.table({**empty, **{column: pa.array([], pa.string()) for column in columns}}), tail
    table = pa.concat_tables(parts)
    return table.filter(pc.invert(pc.is_in(table["key"], pa.array(sorted(seen), pa.string())))), tail


def may_match(stats: str | None, question: Question) -> bool:
    if stats is None:
        return True
    parsed = json.loads(stats)
    low, high = (parsed.get(side, {}).get(question.column) for side in ("minValues", "maxValues"))
    return low is None or high is None or (low <= question.high and high >= question.low)


def kept(uri: str, question: Question, typed: bool) -> Answer:
    """Count and bytes of the files that may hold what is asked."""
    by_day = question.column == "p_date"
    column = "stats_parsed" if typed else "stats"
    table, tail = replay(uri, [] if by_day else [column])
    if by_day:
        mask = pc.equal(table["day"], question.low)
        tail = [add for add in tail if add["partitionValues"]["p_date"] == question.low]
    elif typed:
        low, high = (pc.struct_field(table[column], [side, question.column]) for side in ("minValues", "maxValues"))
        mask = pc.and_(pc.less_equal(low, question.high), pc.greater_equal(high, question.low))
        mask = pc.fill_null(mask, True)
    else:
        mask = pa.array([may_match(stats.as_py(), question) for stats in table[column]], pa.bool_())
    tail = tail if by_day else [add for add in tail if may_match(add.get("stats"), question)]
    chosen = table.filter(mask)
    return {"files": chosen.num_rows + len(tail), "bytes": total(chosen["size"]) + sum(add["size"] for add in tail)}


def total(sizes: pa.ChunkedArray) -> int:
    return int(pc.sum(sizes).as_py() or 0)
