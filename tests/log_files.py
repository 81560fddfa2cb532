"""Tables and logs written by hand, for all suites: logs as other writers, crashes and log cleanups leave them."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

import deltic

Action = dict[str, Any]

TEXTS = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
FILE_ACTIONS = {
    "add": pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", TEXTS),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("deletionVector", VECTOR),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()),
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("partitionValues", TEXTS),
            ("size", pa.int64()),
            ("deletionVector", VECTOR),
        ]
    ),
}
OTHER_ACTIONS = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("createdTime", pa.int64()),
            ("configuration", TEXTS),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
}
CHECKPOINT_SCHEMA = pa.schema(list((OTHER_ACTIONS | FILE_ACTIONS).items()))
SIDECAR_SCHEMA = pa.schema(list(FILE_ACTIONS.items()))


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> Action:
    """A column of a schema string."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: Action) -> Action:
    return {"type": "struct", "fields": list(fields)}


def protocol(reader: int = 1, writer: int = 2, **features: Any) -> Action:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}


def features(*names: str) -> Action:
    """A protocol action that lists these features as reader and writer features."""
    return protocol(3, 7, readerFeatures=list(names), writerFeatures=list(names))


def metadata(schema: Any, partition: tuple[str, ...] = (), **properties: Any) -> Action:
    """A metadata action. The names of properties are given without the prefix `delta.`."""
    return {
        "metaData": {
            "id": "0b6f6f1c-30d2-4b3e-9d8a-5d6a2f1f7b01",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema) if isinstance(schema, dict) else schema,
            "partitionColumns": list(partition),
            "configuration": {f"delta.{key}": value for key, value in properties.items()},
            "createdTime": 1_700_000_000_000,
        }
    }


def add(path: str, size: int = 1, stats: Any = None, **members: Any) -> Action:
    """An add action. The file need not exist."""
    body: Action = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    body |= {} if stats is None else {"stats": json.dumps(stats)}
    return {"add": {**body, **members}}


def remove(path: str, **members: Any) -> Action:
    return {"remove": {"path": path, "dataChange": True, **members}}


class Log:
    """The files of a table's log."""

    def __init__(self, uri: str, commits: int | None = None) -> None:
        """Open a log. With `commits`: append as many rows, one per commit, and delete all log files but the commits."""
        self.uri = uri
        self.folder = Path(uri, "_delta_log")
        if commits is None:
            return
        for version in range(commits):
            deltic.write(uri, pa.table({"v": [version]}))
        for path in self.folder.glob("*"):
            if not path.name.endswith(".json"):
                path.unlink()

    @classmethod
    def empty(cls, uri: str | Path, *actions: Action) -> Log:
        """Create the folder of a log, with the given actions as version 0."""
        log = cls(str(uri))
        log.folder.mkdir(parents=True)
        if actions:
            log.commit(0, actions)
        return log

    @property
    def table(self) -> deltic.Table:
        return deltic.Table(self.uri)

    def rows(self, version: int | None = None) -> list[int]:
        return sorted(self.table.snapshot(version).scan().to_arrow()["v"].to_pylist())

    def path(self, version: int, extension: str = "json") -> Path:
        return self.folder / f"{version:020}.{extension}"

    def read(self, version: int) -> list[Action]:
        # Not splitlines(): a JSON string may contain Unicode's other line separators.
        lines = self.path(version).read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line.strip()]

    def of(self, version: int, kind: str) -> list[Action]:
        """The actions of one kind in a commit."""
        return [action[kind] for action in self.read(version) if kind in action]

    def commit(self, version: int, actions: Iterable[Action], *, ascii: bool = True) -> None:
        text = "".join(json.dumps(action, ensure_ascii=ascii) + "\n" for action in actions)
        self.path(version).write_text(text, encoding="utf-8")

    def file(self, name: str, rows: pa.Table, stats: Any = None, **members: Any) -> Action:
        """Write a Parquet file into the table's folder; return its add action."""
        path = Path(self.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        members = {"size": path.stat().st_size, **members}
        return add(name, stats={"numRecords": rows.num_rows} if stats is None else stats, **members)

    def add_columns(self, version: int, fields: Iterable[Action], *needed: str) -> None:
        """Add columns to a version's schema, and the features they need to its protocol; delete its checksum."""

        def widen(metadata: Action) -> None:
            schema = json.loads(metadata["schemaString"])
            schema["fields"] += fields
            metadata["schemaString"] = json.dumps(schema)

        self.edit(version, "metaData", widen)
        self.edit(version, "protocol", lambda protocol: protocol.update(features(*needed)["protocol"]))
        self.path(version, "crc").unlink()

    def append(self, actions: list[Action]) -> int:
        """Write a commit after the newest one, with a commit info in front."""
        version = max(int(path.stem) for path in self.folder.glob("[0-9]*.json") if len(path.stem) == 20) + 1
        self.commit(version, [{"commitInfo": {"operation": "HAND", "timestamp": 0}}, *actions])
        return version

    def edit(self, version: int, kind: str, change: Callable[[Action], None]) -> None:
        """Change the actions of one kind in a commit."""
        actions = self.read(version)
        for action in actions:
            if kind in action:
                change(action[kind])
        self.commit(version, actions)

    def remove(self, *versions: int) -> None:
        for version in versions:
            self.path(version).unlink()

    def modified(self, times: dict[int, int]) -> None:
        """Set the modification times of commits, in milliseconds."""
        for version, ms in times.items():
            os.utime(self.path(version), ns=(ms * 1_000_000, ms * 1_000_000))

    def state(self, version: int) -> list[Action]:
        """The reconciled actions of a version, replayed from the commits."""
        kept: dict[tuple[str, ...], Action] = {}
        for number in range(version + 1):
            for action in self.read(number):
                (kind, body), *_ = action.items()
                match kind:
                    case "add" | "remove":
                        vector = body.get("deletionVector") or {}
                        kept["file", body["path"], json.dumps(vector, sort_keys=True)] = action
                    case "txn":
                        kept["txn", body["appId"]] = action
                    case "domainMetadata":
                        kept["domain", body["domain"]] = action
                    case "protocol" | "metaData":
                        kept[kind,] = action
        removed = [key for key, action in kept.items() if action.get("domainMetadata", {}).get("removed")]
        return [action for key, action in kept.items() if key not in removed]

    def checkpoint(self, version: int, parts: int | None = None, actions: list[Action] | None = None) -> list[Path]:
        """Write a V1 checkpoint, in one file or in `parts` files."""
        rows = self.state(version) if actions is None else actions
        if parts is None:
            paths = [self.path(version, "checkpoint.parquet")]
        else:
            names = [f"checkpoint.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]
            paths = [self.path(version, name) for name in names]
        for number, path in enumerate(paths):
            write_rows(path, rows[number :: len(paths)], CHECKPOINT_SCHEMA)
        return paths

    def two_level_checkpoint(self, version: int) -> tuple[Path, Path]:
        """Write a V2 checkpoint: a JSON file and one sidecar."""
        state = self.state(version)
        sidecar = self.folder / "_sidecars" / f"{uuid.uuid4()}.parquet"
        sidecar.parent.mkdir(exist_ok=True)
        write_rows(sidecar, [a for a in state if "add" in a or "remove" in a], SIDECAR_SCHEMA)
        reference = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 0}
        top = [{"checkpointMetadata": {"version": version}}, {"sidecar": reference}]
        top += [a for a in state if "add" not in a and "remove" not in a]
        path = self.path(version, f"checkpoint.{uuid.uuid4()}.json")
        path.write_text("".join(json.dumps(action) + "\n" for action in top))
        return path, sidecar

    def hint(self, version: int, **members: Any) -> Path:
        """Write `_last_checkpoint`, by default correct for the V1 checkpoint of that version."""
        paths = list(self.folder.glob(f"{version:020}.checkpoint*.parquet"))
        tables = [pq.read_table(path) for path in paths]
        defaults: Action = {
            "version": version,
            "size": sum(table.num_rows for table in tables),
            "sizeInBytes": sum(path.stat().st_size for path in paths),
            "numOfAddFiles": sum(table.num_rows - table["add"].null_count for table in tables),
        }
        defaults |= {"parts": len(paths)} if len(paths) > 1 else {}
        return self.put_hint({**defaults, **members})

    def put_hint(self, members: Action) -> Path:
        path = self.folder / "_last_checkpoint"
        members = {name: value for name, value in members.items() if value is not None}
        path.write_text(json.dumps({"checksum": hint_checksum(members), **members}))
        return path

    def checksum(self, version: int, **members: Any) -> Path:
        """Write the version's checksum, by default correct."""
        state = self.state(version)
        adds = [action["add"] for action in state if "add" in action]
        sizes = [add["size"] for add in adds]
        deleted = [add["deletionVector"]["cardinality"] for add in adds if add.get("deletionVector")]
        of = {kind: [action[kind] for action in state if kind in action] for kind in OTHER_ACTIONS}
        starts = [0, 300, 310]
        ends = [*starts[1:], 1 << 62]
        bins = [[size for size in sizes if a <= size < b] for a, b in zip(starts, ends, strict=True)]
        info = next((action["commitInfo"] for action in self.read(version) if "commitInfo" in action), {})
        defaults: Action = {
            "tableSizeBytes": sum(sizes),
            "numFiles": len(sizes),
            "numMetadata": 1,
            "numProtocol": 1,
            "inCommitTimestampOpt": info.get("inCommitTimestamp"),
            "txnId": info.get("txnId"),
            "setTransactions": of["txn"],
            "domainMetadata": of["domainMetadata"],
            "metadata": of["metaData"][-1],
            "protocol": of["protocol"][-1],
            "fileSizeHistogram": {
                "sortedBinBoundaries": starts,
                "fileCounts": [len(found) for found in bins],
                "totalBytes": [sum(found) for found in bins],
            },
            "numDeletedRecordsOpt": sum(deleted),
            "numDeletionVectorsOpt": len(deleted),
            "allFiles": adds,
        }
        path = self.path(version, "crc")
        path.write_text(json.dumps({**defaults, **members}))
        return path


def write_rows(path: Path, actions: list[Action], schema: pa.Schema) -> None:
    def row(action: Action) -> Action:
        return {kind: plain(body, schema.field(kind).type) for kind, body in action.items()}

    pq.write_table(pa.Table.from_pylist([row(action) for action in actions], schema), path)


def plain(value: Any, kind: pa.DataType) -> Any:
    """Convert dicts of map columns to lists of pairs, as pyarrow requires."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {name: plain(value.get(name), kind.field(name).type) for name in (f.name for f in kind)}
    return value


def hint_checksum(members: Action) -> str:
    """PROTOCOL.md: "JSON checksum"."""

    def quoted(text: str) -> str:
        return f'"{quote(text, safe="-._~")}"'

    def leaves(value: Any, path: str) -> Iterable[str]:
        if isinstance(value, dict):
            for key, member in value.items():
                yield from leaves(member, f"{path}+{quoted(key)}" if path else quoted(key))
        elif isinstance(value, list):
            for index, element in enumerate(value):
                yield from leaves(element, f"{path}+{index}")
        else:
            yield f"{path}={quoted(value) if isinstance(value, str) else json.dumps(value)}"

    return hashlib.md5(",".join(sorted(leaves(members, ""))).encode()).hexdigest()
