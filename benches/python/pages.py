"""Locates pages of Parquet files, then reads and decompresses them: the least work of any reader.

A page can be decompressed only as a whole, since the position of a row in it is not known before.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

# Field types of Thrift's compact protocol with a value after the field header.
BYTE, INTEGERS, DOUBLE, BINARY, STRUCT = 3, (4, 5, 6), 7, 8, 12
UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3
# A buffer for each thread, into which pages are read one after the other.
KEPT = threading.local()


@dataclass(frozen=True)
class Chunk:
    """A column chunk: offset and length, and for each page its offset, length and decompressed length."""

    path: Path
    codec: str
    start: int
    length: int
    pages: tuple[tuple[int, int, int], ...]


class _Header:
    """The numbers at the beginning of a `PageHeader`, by field id."""

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


def chunks(path: Path, columns: list[str]) -> list[Chunk]:
    """The chunks of the given columns, or of all leaves below them, in all row groups."""
    footer = pq.read_metadata(path)
    found = []
    with path.open("rb") as file:
        for group in map(footer.row_group, range(footer.num_row_groups)):
            leaves = [group.column(number) for number in range(group.num_columns)]
            for column in columns:
                wanted = [leaf for leaf in leaves if f"{leaf.path_in_schema}.".startswith(f"{column}.")]
                assert wanted, f"{path} has no {column}"
                found += [_chunk(path, file, leaf) for leaf in wanted]
    return found


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


def decompress(chunks: Iterable[Chunk], threads: Executor) -> int:
    """Read and decompress all pages, the largest columns first, without keeping them; return the number of bytes."""
    return sum(threads.map(_decompressed, sorted(chunks, key=lambda chunk: -chunk.length)))


def _decompressed(chunk: Chunk) -> int:
    longest = max(length for _, length, _ in chunk.pages)
    if len(getattr(KEPT, "memory", b"")) < longest:
        KEPT.memory = bytearray(longest)
    codec, done = pa.Codec(chunk.codec), 0
    with chunk.path.open("rb", buffering=0) as file:
        for place, length, size in chunk.pages:
            file.seek(chunk.start + place)
            page = memoryview(KEPT.memory)[:length]
            assert file.readinto(page) == length, f"{chunk.path} is cut off"
            done += len(codec.decompress(pa.py_buffer(page), size))
    return done
