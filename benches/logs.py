"""Logs of tables without data files, as delta-spark would write them, for planning.

Everything about a file is computed from its number by a hash. So a table is deterministic, chunks can be built in any
order, and a later commit can name any earlier file. All data is columnar, without a Python object for each file.
"""

import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FIRST_DAY = np.datetime64("2021-01-01")
DAYS = 1_000
ROWS_OF_A_FILE = 1_000
CHECKPOINT_VERSION = 1_000
COMMITS_AFTER, CHANGES_OF_A_COMMIT = 100, 50
ROWS_OF_A_ROW_GROUP = 100_000
# The number of partitions by hash of path in which delta-spark replays the log, and the one of actions without a path.
PARTITIONS, PARTITION_OF_THE_REST = 50, 42
DELETED_AT = 1_760_000_000_000
MODIFIED_AT = 1_750_000_000_000

# Columns with statistics, with their Delta types; the last one is a struct field.
FIELDS: dict[str, tuple[str, pa.DataType]] = {
    "event_id": ("long", pa.int64()),
    "quantity": ("integer", pa.int32()),
    "price": ("double", pa.float64()),
    "customer": ("string", pa.string()),
    "shipped": ("date", pa.date32()),
    "event_time": ("timestamp", pa.timestamp("us", "UTC")),
    "amount": ("decimal(12,2)", pa.decimal128(12, 2)),
    "temperature": ("double", pa.float64()),
}


@dataclass(frozen=True)
class Shape:
    """The size of a table and the format of its checkpoint."""

    files: int
    statistics: str = "json"  # or "typed", or "both"
    compression: str = "snappy"
    deletion_vectors: bool = False  # on every tenth file
    v2: bool = False


def noise(numbers: np.ndarray, salt: int) -> np.ndarray:
    """Deterministic random bits for each number (splitmix64)."""
    z = numbers.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def below(numbers: np.ndarray, salt: int, limit: int) -> np.ndarray:
    return (noise(numbers, salt) % np.uint64(limit)).astype(np.int64)


def fixed(count: int, *pieces: "bytes | np.ndarray") -> pa.StringArray:
    """Strings of equal width, from constant bytes and columns of bytes."""
    columns = [np.frombuffer(piece, np.uint8)[None, :] if isinstance(piece, bytes) else piece for piece in pieces]
    text = np.concatenate([np.broadcast_to(column, (count, column.shape[1])) for column in columns], axis=1)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(text.shape[1])
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def digits(values: np.ndarray, width: int) -> np.ndarray:
    """Decimal digits with leading zeros, as bytes."""
    return (values[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)


_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)
_DAY_TEXT = np.frombuffer(
    b"".join(str(FIRST_DAY + day).encode() for day in range(DAYS)), np.uint8
).reshape(DAYS, 10)  # fmt: skip


def uuids(numbers: np.ndarray, salt: int) -> np.ndarray:
    both = np.stack([noise(numbers, salt), noise(numbers, salt + 1)], axis=1)
    return _HEX[both.view(np.uint8).reshape(len(numbers), 16)].reshape(len(numbers), 32)


# A deletion vector of rows 1, 2 and 3: a portable array of one roaring bitmap (PROTOCOL.md: "Deletion Vector Format").
VECTOR_BYTES = struct.pack("<IqIIIHHI3H", 1681511377, 1, 0, 12346, 1, 0, 2, 16, 1, 2, 3)
VECTORS_OF_A_FILE = 100_000
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def vector_file(file: int) -> uuid.UUID:
    return uuid.UUID(int=0x6C0FFEE0_0000_4000_8000_000000000000 + file)


def z85(identity: uuid.UUID) -> bytes:
    """A UUID in Z85, as the log names the file of a deletion vector."""
    words = struct.unpack(">4I", identity.bytes)
    return bytes(_Z85[word // 85**power % 85] for word in words for power in range(4, -1, -1))


def vector_on_disk() -> bytes:
    return struct.pack(">I", len(VECTOR_BYTES)) + VECTOR_BYTES + struct.pack(">I", zlib.crc32(VECTOR_BYTES))


def write_vectors(uri: str, numbers: int) -> None:
    """Write the deletion vector files for all files below a number, even those without a vector."""
    for file in range(numbers // VECTORS_OF_A_FILE + 1):
        path = Path(uri, f"deletion_vector_{vector_file(file)}.bin")
        path.write_bytes(b"\x01" + vector_on_disk() * VECTORS_OF_A_FILE)


def decimals(cents: np.ndarray) -> pa.Array:
    words = np.stack([cents, cents >> 63], axis=1)
    kind = FIELDS["amount"][1]
    return pa.Array.from_buffers(kind, len(cents), [None, pa.py_buffer(np.ascontiguousarray(words))])


@dataclass(frozen=True)
class Files:
    """Some files: their numbers, their ranges of rows (`event`, in units of a file) and their days."""

    number: np.ndarray
    event: np.ndarray
    day: np.ndarray

    @classmethod
    def live(cls, numbers: np.ndarray, files: int) -> "Files":
        return cls(numbers, numbers, numbers * DAYS // files)

    def slice(self, start: int, stop: int) -> "Files":
        return Files(self.number[start:stop], self.event[start:stop], self.day[start:stop])

    def __len__(self) -> int:
        return len(self.number)

    def days(self) -> pa.Array:
        return fixed(len(self), _DAY_TEXT[self.day])

    def paths(self) -> pa.Array:
        hexes = uuids(self.number, 1)
        dash = b"-"
        uuid = [hexes[:, :8], dash, hexes[:, 8:12], dash, hexes[:, 12:16], dash, hexes[:, 16:20], dash, hexes[:, 20:]]
        name = [b"/part-", digits(self.number % 100_000, 5), dash, *uuid, b".c000.snappy.parquet"]
        return fixed(len(self), b"p_date=", _DAY_TEXT[self.day], *name)

    def sizes(self) -> pa.Array:
        return pa.array(1_000_000 + below(self.number, 3, 200_000_000))

    def partition_values(self) -> pa.MapArray:
        offsets = pa.array(np.arange(len(self) + 1, dtype=np.int32))
        keys = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(self), np.int32)), pa.array(["p_date"]))
        return pa.MapArray.from_arrays(offsets, keys.cast(pa.string()), self.days())

    def with_vector(self) -> np.ndarray:
        return below(self.number, 4, 10) == 0

    def vectors(self) -> dict[str, pa.Array]:
        """The fields of deletion vectors, several in one file as in `write_vectors`."""
        count = len(self)
        files = range(self.number.max() // VECTORS_OF_A_FILE + 1)
        names = np.array([np.frombuffer(z85(vector_file(file)), np.uint8) for file in files])
        return {
            "storageType": fixed(count, b"u"),
            "pathOrInlineDv": fixed(count, names[self.number // VECTORS_OF_A_FILE]),
            "offset": pa.array((1 + self.number % VECTORS_OF_A_FILE * len(vector_on_disk())).astype(np.int32)),
            "sizeInBytes": pa.array(np.full(count, len(VECTOR_BYTES), np.int32)),
            "cardinality": pa.array(np.full(count, 3)),
        }

    def bounds(self) -> tuple[dict[str, pa.Array], dict[str, pa.Array], dict[str, pa.Array]]:
        """Typed minimum and maximum values and null counts, by column."""
        count = len(self)
        day = (FIRST_DAY + self.day).astype("datetime64[D]")
        time = day.astype("datetime64[ms]")
        lows: dict[str, pa.Array] = {}
        highs: dict[str, pa.Array] = {}

        def both(name: str, low: np.ndarray, high: np.ndarray) -> None:
            lows[name], highs[name] = (pa.array(side).cast(FIELDS[name][1]) for side in (low, high))

        both("event_id", self.event * ROWS_OF_A_FILE, self.event * ROWS_OF_A_FILE + ROWS_OF_A_FILE - 1)
        both("quantity", below(self.number, 40, 10), below(self.number, 41, 900) + 100)
        both("price", below(self.number, 42, 5_000) / 100, (below(self.number, 43, 5_000) + 90_000) / 100)
        lows["customer"] = fixed(count, b"customer ", digits(below(self.number, 44, 1_000), 7))
        highs["customer"] = fixed(count, b"customer ", digits(below(self.number, 45, 1_000) + 9_998_000, 7))
        both("shipped", day + 1 + below(self.number, 46, 3), day + 5 + below(self.number, 47, 30))
        late = time + 86_400_000 - 1 - below(self.number, 49, 1_000_000)
        lows["event_time"] = pa.array((time + below(self.number, 48, 1_000_000)).astype("datetime64[us]")).cast(
            FIELDS["event_time"][1]
        )
        highs["event_time"] = pa.array(late.astype("datetime64[us]")).cast(FIELDS["event_time"][1])
        lows["amount"] = decimals(below(self.number, 50, 10_000))
        highs["amount"] = decimals(below(self.number, 51, 100_000) + 9_000_000)
        both("temperature", below(self.number, 52, 400) / 10 - 30, below(self.number, 53, 200) / 10 + 20)
        nulls = {
            name: pa.array(np.zeros(count, np.int64) if name == "event_id" else below(self.number, 60 + place, 20))
            for place, name in enumerate(FIELDS)
        }
        return lows, highs, nulls

    def stats(self, *, vectors: bool) -> pa.Array:
        """Statistics as JSON, in delta-spark's format."""
        lows, highs, nulls = self.bounds()
        pieces: list[pa.Array | str] = [f'{{"numRecords":{ROWS_OF_A_FILE}']
        for title, columns in (("minValues", lows), ("maxValues", highs), ("nullCount", nulls)):
            pieces.append(f',"{title}":{{')
            for place, (name, values) in enumerate(columns.items()):
                label = f'"{name}":' if name != "temperature" else '"device":{"temperature":'
                pieces += ["," * (place > 0) + label, *json_values(values), "}" * (name == "temperature")]
            pieces.append("}")
        if vectors:
            pieces.append(pc.if_else(self.with_vector(), ',"tightBounds":false', ',"tightBounds":true'))
        return join(*pieces, "}")

    def stats_parsed(self) -> pa.StructArray:
        lows, highs, nulls = self.bounds()
        records = pa.array(np.full(len(self), ROWS_OF_A_FILE))
        sides = {"minValues": nested(lows), "maxValues": nested(highs), "nullCount": nested(nulls)}
        return record({"numRecords": records, **sides})


def join(*pieces: "pa.Array | str") -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def json_values(values: pa.Array) -> list["pa.Array | str"]:
    """A column as JSON values, in pieces to join."""
    if pa.types.is_timestamp(values.type):
        text = values.cast(pa.timestamp("ms")).cast(pa.string())  # "2021-01-01 00:00:00.000"
        return ['"', pc.replace_substring(text, " ", "T"), 'Z"']
    if pa.types.is_date(values.type):
        return ['"', values.cast(pa.string()), '"']
    if pa.types.is_string(values.type):
        return ['"', values, '"']
    return [values.cast(pa.string())]


def record(columns: dict[str, pa.Array], present: "np.ndarray | None" = None) -> pa.StructArray:
    mask = None if present is None else pa.array(~present)
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=mask)


def nested(columns: dict[str, pa.Array]) -> pa.StructArray:
    flat = {name: values for name, values in columns.items() if name != "temperature"}
    return record({**flat, "device": record({"temperature": columns["temperature"]})})


# --- actions ---


def field(name: str, kind: "str | dict[str, object]") -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def features(shape: Shape) -> list[str]:
    return ["deletionVectors"] * shape.deletion_vectors + ["v2Checkpoint"] * shape.v2


def protocol(shape: Shape) -> dict[str, object]:
    if not features(shape):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    named = {"readerFeatures": features(shape), "writerFeatures": features(shape)}
    return {"minReaderVersion": 3, "minWriterVersion": 7, **named}


def metadata(shape: Shape) -> dict[str, object]:
    columns = [field(name, kind) for name, (kind, _) in FIELDS.items() if name != "temperature"]
    device = {"type": "struct", "fields": [field("temperature", "double"), field("model", "string")]}
    fields = [*columns, field("device", device), field("p_date", "date")]
    # Tombstones never expire.
    configuration = {"delta.deletedFileRetentionDuration": "interval 36500 days"}
    if shape.statistics != "json":
        configuration["delta.checkpoint.writeStatsAsStruct"] = "true"
        configuration["delta.checkpoint.writeStatsAsJson"] = str(shape.statistics == "both").lower()
    if shape.deletion_vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    if shape.v2:
        configuration["delta.checkpointPolicy"] = "v2"
    return {
        "id": "5c1f2d9e-7f0a-4a52-9a58-3f4f0f8e2b11",
        "name": "events",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")),
        "partitionColumns": ["p_date"],
        "configuration": configuration,
        "createdTime": MODIFIED_AT,
    }


TEXT_MAP = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
REST = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": TEXT_MAP}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": TEXT_MAP,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    ),
}


def vector_column(files: Files, shape: Shape) -> pa.Array:
    if not shape.deletion_vectors:
        return pa.nulls(len(files), VECTOR)
    return record(files.vectors(), files.with_vector())


def adds(files: Files, shape: Shape) -> pa.StructArray:
    """The column `add` of a checkpoint."""
    count = len(files)
    columns = {
        "path": files.paths(),
        "partitionValues": files.partition_values(),
        "size": files.sizes(),
        "modificationTime": pa.array(MODIFIED_AT + files.number),
        "dataChange": pa.array(np.zeros(count, bool)),
        "tags": pa.nulls(count, TEXT_MAP),
        "deletionVector": vector_column(files, shape),
        "baseRowId": pa.nulls(count, pa.int64()),
        "defaultRowCommitVersion": pa.nulls(count, pa.int64()),
        "clusteringProvider": pa.nulls(count, pa.string()),
        "stats": pa.nulls(count, pa.string()),
    }
    if shape.statistics != "typed":
        columns["stats"] = files.stats(vectors=shape.deletion_vectors)
    if shape.statistics != "json":
        days = pa.array((FIRST_DAY + files.day).astype("datetime64[D]"))
        columns |= {"partitionValues_parsed": record({"p_date": days}), "stats_parsed": files.stats_parsed()}
    return record(columns)


def removes(files: Files, shape: Shape) -> pa.StructArray:
    """The column `remove` of a checkpoint: tombstones."""
    count = len(files)
    return record(
        {
            "path": files.paths(),
            "deletionTimestamp": pa.array(DELETED_AT + below(files.number, 6, 1_000_000)),
            "dataChange": pa.array(np.zeros(count, bool)),
            "extendedFileMetadata": pa.array(np.ones(count, bool)),
            "partitionValues": files.partition_values(),
            "size": files.sizes(),
            "deletionVector": pa.nulls(count, VECTOR),
            "baseRowId": pa.nulls(count, pa.int64()),
            "defaultRowCommitVersion": pa.nulls(count, pa.int64()),
        }
    )


def rest(shape: Shape) -> Iterator[tuple[str, pa.Array]]:
    """The actions other than file actions, each in one batch."""
    applications = [{"appId": f"stream {place}", "version": place, "lastUpdated": MODIFIED_AT} for place in range(2)]
    described = metadata(shape)
    described |= {"configuration": list(described["configuration"].items())}  # type: ignore[attr-defined]
    described |= {"format": {"provider": "parquet", "options": []}}
    for name, rows in (("protocol", [protocol(shape)]), ("metaData", [described]), ("txn", applications)):
        yield name, pa.array(rows, REST[name])


def checkpoint_columns(shape: Shape, live: Files, tombstones: Files) -> Iterator[tuple[str, pa.Array]]:
    """The batches of a checkpoint in delta-spark's order, each with its only non-null column."""
    for partition in range(PARTITIONS):
        if partition == PARTITION_OF_THE_REST:
            yield from rest(shape)
        for name, files, column in (("remove", tombstones, removes), ("add", live, adds)):
            ends = [len(files) * end // PARTITIONS for end in (partition, partition + 1)]
            # One row group at a time, so that memory does not grow with the table.
            for start in range(ends[0], ends[1], ROWS_OF_A_ROW_GROUP):
                yield name, column(files.slice(start, min(start + ROWS_OF_A_ROW_GROUP, ends[1])), shape)


def write_checkpoint(log: Path, shape: Shape, live: Files, tombstones: Files) -> None:
    kinds = {
        **REST,
        "add": adds(live.slice(0, 1), shape).type,
        "remove": removes(live.slice(0, 1), shape).type,
    }
    schema = pa.schema([(name, kinds[name]) for name in ("txn", "add", "remove", "metaData", "protocol")])
    path = log / f"{CHECKPOINT_VERSION:020}.checkpoint.parquet"
    rows = 0
    group: list[pa.RecordBatch] = []
    with pq.ParquetWriter(
        path, schema, compression=shape.compression, store_decimal_as_integer=True, write_page_index=True
    ) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_batches(group, schema).combine_chunks(), row_group_size=2**40)
            group.clear()

        for name, column in checkpoint_columns(shape, live, tombstones):
            rows += len(column)
            arrays = [column if kind.name == name else pa.nulls(len(column), kind.type) for kind in schema]
            group.append(pa.record_batch(arrays, schema=schema))
            if sum(batch.num_rows for batch in group) >= ROWS_OF_A_ROW_GROUP:
                flush()
        if group:
            flush()
    hint = {"version": CHECKPOINT_VERSION, "size": rows, "sizeInBytes": path.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps({**hint, "numOfAddFiles": len(live)}))


# --- commits ---


def vector_text(files: Files, shape: Shape) -> "pa.Array | str":
    """The JSON member `deletionVector` of an action, or an empty string."""
    if not shape.deletion_vectors:
        return ""
    vector = files.vectors()
    text = join(
        *(',"deletionVector":{"storageType":"u","pathOrInlineDv":"', vector["pathOrInlineDv"], '","offset":'),
        *(vector["offset"].cast(pa.string()), ',"sizeInBytes":', vector["sizeInBytes"].cast(pa.string())),
        *(',"cardinality":', vector["cardinality"].cast(pa.string()), "}"),
    )
    return pc.if_else(files.with_vector(), text, "")


def add_lines(files: Files, shape: Shape) -> pa.Array:
    escaped = pc.replace_substring(files.stats(vectors=shape.deletion_vectors), '"', '\\"')
    return join(
        *('{"add":{"path":"', files.paths(), '","partitionValues":{"p_date":"', files.days(), '"},"size":'),
        *(files.sizes().cast(pa.string()), f',"modificationTime":{MODIFIED_AT},"dataChange":true,"stats":"'),
        *(escaped, '"', vector_text(files, shape), "}}"),
    )


def remove_lines(files: Files, shape: Shape) -> pa.Array:
    """Remove actions, with the deletion vectors of the adds."""
    return join(
        *('{"remove":{"path":"', files.paths(), f'","deletionTimestamp":{DELETED_AT},"dataChange":true'),
        *(',"extendedFileMetadata":true,"partitionValues":{"p_date":"', files.days(), '"},"size":'),
        *(files.sizes().cast(pa.string()), vector_text(files, shape), "}}"),
    )


def write_commit(log: Path, version: int, lines: list[str]) -> None:
    info = {"timestamp": MODIFIED_AT + version, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    info |= {"isBlindAppend": False, "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.0"}
    (log / f"{version:020}.json").write_text("\n".join([json.dumps({"commitInfo": info}), *lines, ""]))


def opening_lines(shape: Shape) -> list[str]:
    return [json.dumps({"protocol": protocol(shape)}), json.dumps({"metaData": metadata(shape)})]


def changes_after(shape: Shape, removed: np.ndarray) -> Files:
    """The files that later commits add: every other one rewrites a removed file, the rest have new rows."""
    number = shape.files + np.arange(len(removed))
    rewrites = np.arange(len(removed)) % 2 == 0
    return Files(
        number,
        np.where(rewrites, removed, number),
        np.where(rewrites, removed * DAYS // shape.files, below(number, 7, DAYS)),
    )


def checkpointed(uri: str, shape: Shape) -> None:
    """A table with a checkpoint and a hundred commits after it."""
    log = Path(uri, "_delta_log")
    log.mkdir(parents=True)
    random = np.random.default_rng(shape.files)
    live = Files.live(random.permutation(shape.files), shape.files)
    dead = 10**12 + np.arange(shape.files // 50)
    if shape.deletion_vectors:
        write_vectors(uri, shape.files + COMMITS_AFTER * CHANGES_OF_A_COMMIT)
    write_checkpoint(log, shape, live, Files(dead, dead, below(dead, 7, DAYS)))
    write_commit(log, CHECKPOINT_VERSION, [])
    removed = random.choice(shape.files, COMMITS_AFTER * CHANGES_OF_A_COMMIT, replace=False)
    gone = remove_lines(Files.live(removed, shape.files), shape).to_pylist()
    new = add_lines(changes_after(shape, removed), shape).to_pylist()
    for commit in range(COMMITS_AFTER):
        part = slice(commit * CHANGES_OF_A_COMMIT, (commit + 1) * CHANGES_OF_A_COMMIT)
        write_commit(log, CHECKPOINT_VERSION + 1 + commit, gone[part] + new[part])


def commits_only(uri: str, shape: Shape, commits: int) -> None:
    """A table without a checkpoint: all its files in JSON commits."""
    log = Path(uri, "_delta_log")
    log.mkdir(parents=True)
    numbers = np.random.default_rng(shape.files).permutation(shape.files)
    lines = add_lines(Files.live(numbers, shape.files), shape).to_pylist()
    for commit in range(commits):
        part = lines[commit * len(lines) // commits : (commit + 1) * len(lines) // commits]
        write_commit(log, commit, (opening_lines(shape) if commit == 0 else []) + part)
