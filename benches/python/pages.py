"""Pages of Parquet files, found beforehand, then read and decompressed: what no reader of Snappy can do without.

A page can only be decompressed as a whole, from its beginning on, and only with it is known where a row stands.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

# Kinds of fields in the compact protocol of Thrift that have a value behind their head.
BYTE, INTEGERS, DOUBLE, BINARY, STRUCT = 3, (4, 5, 6), 7, 8, 12
UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3


@dataclass(frozen=True)
class Chunk:
    """A column of a row group: where it is, and of each page where in it, how long, and how long decompressed."""

    path: Path
    codec: str
    start: int
    length: int
    pages: tuple[tuple[int, int, int], ...]


class _Header:
    """The numbers at the top of a `PageHeader`, by their field."""

    def __init__(self, data: memoryview, place: int):
        self.data, self.place = data, place
        self.numbers = self._struct()

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _struct(self) -> dict[int, int]:
        found, field = {}, 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            if kind in INTEGERS:
                found[field] = self._number()
            elif kind == STRUCT:
                self._struct()
            elif kind in (BYTE, DOUBLE):
                self.place += 1 if kind == BYTE else 8
            elif kind == BINARY:
                length = self._varint()
                self.place += length
            else:
                assert kind in (1, 2), f"a field of kind {kind}"
        return found

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]


def chunks(path: Path, columns: list[str]) -> list[list[Chunk]]:
    """Columns, or all leaves below them, of each row group."""
    footer = pq.read_metadata(path)
    groups = []
    with path.open("rb") as file:
        for group in map(footer.row_group, range(footer.num_row_groups)):
            leaves = [group.column(number) for number in range(group.num_columns)]
            wanted = [leaf for leaf in leaves if any(f"{leaf.path_in_schema}.".startswith(f"{c}.") for c in columns)]
            groups.append([_chunk(path, file, leaf) for leaf in wanted])
    return groups


def _chunk(path: Path, file: BinaryIO, leaf: pq.ColumnChunkMetaData) -> Chunk:
    start = leaf.dictionary_page_offset if leaf.has_dictionary_page else leaf.data_page_offset
    file.seek(start)
    data = memoryview(file.read(leaf.total_compressed_size))
    pages, place = [], 0
    while place < len(data):
        header = _Header(data, place)
        length = header.numbers[COMPRESSED_SIZE]
        pages.append((header.place, length, header.numbers[UNCOMPRESSED_SIZE]))
        place = header.place + length
    return Chunk(path, leaf.compression.lower(), start, len(data), tuple(pages))


def decompress(groups: Iterable[list[Chunk]], threads: Executor) -> int:
    """Reads and decompresses all pages, one row group a thread, and keeps nothing. Gives how many bytes they are."""
    kept = threading.local()

    def one(group: list[Chunk]) -> int:
        return sum(_decompressed(chunk, kept) for chunk in group)

    return sum(threads.map(one, groups))


def _decompressed(chunk: Chunk, kept: threading.local) -> int:
    if len(getattr(kept, "memory", b"")) < chunk.length:
        kept.memory = bytearray(chunk.length)
    memory = memoryview(kept.memory)[: chunk.length]
    with chunk.path.open("rb", buffering=0) as file:
        file.seek(chunk.start)
        read = 0
        while read < chunk.length:
            read += file.readinto(memory[read:])
    codec, done = pa.Codec(chunk.codec), 0
    for place, length, size in chunk.pages:
        done += len(codec.decompress(pa.py_buffer(memory[place : place + length]), size))
    return done
