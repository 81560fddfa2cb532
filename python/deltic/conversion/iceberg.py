"""The files and columns of an Iceberg table, for a conversion; its metadata is read with pyiceberg.

All metadata is read from the table's own store. PROTOCOL.md: "Column Mapping". Iceberg's specification: "Schemas and
Data Types", "Partitioning", "Manifests".
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any

from deltic import _deltic
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.table.table import Table

__all__ = ["foreign_table", "is_metadata"]

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}

_GZIP = b"\x1f\x8b"

_LARGEST = 1 << 30
"""The most bytes of a metadata file after decompression; a small compressed file may become very large."""

_EPOCH = datetime(1970, 1, 1)


def is_metadata(uri: str) -> bool:
    """Whether this is the location of a metadata file."""
    return uri.endswith((".metadata.json", ".metadata.json.gz"))


def foreign_table(table: Table, metadata: str, before: str | None = None) -> dict[str, Any]:
    """Describe the Iceberg table of a metadata file, given by its path or URI, in the form of the core.

    `before`: the metadata file that was written before it, which must belong to the same table.

    Raises `UnsupportedFeatureError` for anything that a Delta table cannot have, `InvalidInputError` for metadata that
    pyiceberg cannot read, and `ModuleNotFoundError` without pyiceberg.
    """
    try:
        import pyiceberg.serializers  # noqa: F401
    except ModuleNotFoundError as missing:
        message = "converting an Iceberg table needs pyiceberg: pip install 'deltic[iceberg]'"
        raise ModuleNotFoundError(message, name=missing.name) from missing
    try:
        iceberg = _Iceberg(table, metadata)
        if before is not None:
            iceberg.check_before(before)
        return iceberg.described()
    except DelticError:
        raise
    except Exception as error:
        # pyiceberg has no exception class of its own for metadata that it does not understand.
        message = f"{table.uri}: the Iceberg metadata {metadata} cannot be read: {error or type(error).__name__}"
        raise InvalidInputError(message, table=table.uri) from error


class _Iceberg:
    """An Iceberg table at its newest snapshot."""

    def __init__(self, table: Table, metadata: str) -> None:
        from pyiceberg.manifest import clear_manifest_cache

        self.table = table
        self.io = _file_io(lambda path: _deltic.read_named_file(table._core, path))
        self.place = metadata
        self.metadata = self.read(metadata)
        self.schema = self.metadata.schema()
        # pyiceberg's cache is for the whole process, by the paths of manifests: another store may have the same paths.
        clear_manifest_cache()

    def read(self, metadata: str) -> Any:
        from pyiceberg.table.metadata import TableMetadataUtil

        content = _deltic.read_named_file(self.table._core, metadata)
        # The names of compressed files differ between releases of Iceberg.
        if content.startswith(_GZIP):
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(_LARGEST + 1)
            if len(content) > _LARGEST:
                raise InvalidInputError(f"{self.table.uri}: {metadata} has more than 1 GiB", table=self.table.uri)
        return TableMetadataUtil.parse_raw(content.decode())

    def check_before(self, before: str) -> None:
        try:
            is_same = self.read(before).table_uuid == self.metadata.table_uuid
        except Exception as error:
            message = (
                f"{self.table.uri}: {before} cannot be read ({error or type(error).__name__}), so that it cannot be "
                f"told whether {self.place} is of the same table; pass the metadata file that the catalog names"
            )
            raise InvalidInputError(message, table=self.table.uri) from error
        if not is_same:
            message = (
                f"{self.table.uri}: {self.place} and {before} are metadata of two Iceberg tables, one of which was "
                "here before the other; pass the metadata file that the catalog names"
            )
            raise InvalidInputError(message, table=self.table.uri)

    def described(self) -> dict[str, Any]:
        columns = [self.column(field, field.name) for field in self.schema.fields]
        partition_by = self.partition_columns()
        snapshot = self.metadata.current_snapshot()
        modified = self.metadata.last_updated_ms if snapshot is None else snapshot.timestamp_ms
        return {
            "format": "iceberg",
            "schema": json.dumps({"type": "struct", "fields": columns}),
            "partition_by": list(partition_by.values()),
            "largest_id": self.metadata.last_column_id,
            "modified_ms": modified,
            "files": [] if snapshot is None else self.files(snapshot, partition_by),
        }

    def refusal(self, what: str, message: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(f"{self.table.uri}: {message}", features=(what,), table=self.table.uri)

    def column(self, field: Any, path: str) -> dict[str, Any]:
        """A column as a field of a Delta schema."""
        if field.initial_default is not None:
            message = (
                f"the column `{path}` has the value {field.initial_default!r} in files that were written before it was "
                "added, and a Delta table reads null there: rewrite the data files of the Iceberg table first, into a "
                "table whose column has no initial default"
            )
            raise self.refusal("initial defaults", message)
        metadata = {"delta.columnMapping.id": field.field_id}
        return {
            "name": field.name,
            "type": self.type(field.field_type, path),
            # Files that were written before a column was required may have nulls in it, or lack it.
            "nullable": True,
            "metadata": metadata if field.doc is None else {**metadata, "comment": field.doc},
        }

    def type(self, type: Any, path: str) -> Any:
        from pyiceberg.types import DecimalType, ListType, MapType, StructType

        if isinstance(type, StructType):
            fields = [self.column(field, f"{path}.{field.name}") for field in type.fields]
            return {"type": "struct", "fields": fields}
        if isinstance(type, ListType):
            element = self.type(type.element_type, f"{path}.element")
            return {"type": "array", "elementType": element, "containsNull": True}
        if isinstance(type, MapType):
            key, value = self.type(type.key_type, f"{path}.key"), self.type(type.value_type, f"{path}.value")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if isinstance(type, DecimalType):
            return f"decimal({type.precision},{type.scale})"
        found = _PRIMITIVES.get(str(type))
        if found is None:
            message = (
                f"the column `{path}` has the Iceberg type {type}, which no Delta table has: drop it, or write it "
                "again as another type"
            )
            raise self.refusal(f"Iceberg type {type}", message)
        return found

    def partition_columns(self) -> dict[int, str]:
        """The partition columns of the Delta table, by their ids: top-level columns with the identity transform in the
        table's spec. Delta has no partitioning by other transforms, and none by bytes.
        """
        columns = {field.field_id: field for field in self.schema.fields}
        found = {}
        for part in self.metadata.spec().fields:
            source = columns.get(part.source_id)
            if source is not None and str(part.transform) == "identity" and str(source.field_type) != "binary":
                self.check_types(source)
                found[source.field_id] = source.name
        return found

    def check_types(self, column: Any) -> None:
        """Refuse a partition column with an earlier type whose values have another form in older manifests."""
        from pyiceberg.types import DecimalType

        for schema in self.metadata.schemas:
            if column.field_id not in schema.field_ids:
                continue
            before, now = schema.find_type(column.field_id), column.field_type
            is_decimal = isinstance(before, DecimalType) and isinstance(now, DecimalType) and before.scale == now.scale
            if before == now or is_decimal or (str(before), str(now)) in (("int", "long"), ("float", "double")):
                continue
            message = (
                f"the partition column `{column.name}` has the type {now}, and had the type {before}: rewrite the data "
                "files of the Iceberg table first, into a table whose column always had its type"
            )
            raise self.refusal("partition columns of other types before", message)

    def files(self, snapshot: Any, partition_by: dict[int, str]) -> list[dict[str, Any]]:
        from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent

        specs = self.metadata.specs()
        files = []
        for manifest in snapshot.manifests(self.io):
            entries = manifest.fetch_manifest_entry(self.io)
            is_data = manifest.content == ManifestContent.DATA
            if any(not is_data or entry.data_file.content != DataFileContent.DATA for entry in entries):
                message = (
                    "rows of the Iceberg table are deleted by delete files or deletion vectors, which a Delta table "
                    "does not read: compact the Iceberg table first (rewrite_data_files), so that its data files "
                    "hold live rows only"
                )
                raise self.refusal("Iceberg delete files", message)
            for entry in entries:
                file = entry.data_file
                if file.file_format != FileFormat.PARQUET:
                    name = getattr(file.file_format, "value", file.file_format)
                    message = (
                        f"{file.file_path} is a file of the format {name}, and a Delta table has Parquet files only"
                    )
                    raise self.refusal(f"{name} files", message)
                if file.key_metadata is not None:
                    raise self.refusal("encrypted files", f"{file.file_path} is encrypted, which no Delta table reads")
                spec = specs[file.spec_id]
                described = {
                    "path": file.file_path,
                    "size": file.file_size_in_bytes,
                    "partition_values": self.values(spec, file, partition_by),
                    "stored": self.stored(spec, file, partition_by),
                }
                files.append(described)
        return files

    def stored(self, spec: Any, file: Any, partition_by: dict[int, str]) -> dict[str, int]:
        """Columns by which a file was partitioned, but the Delta table is not: the file itself must have them."""
        return {
            self.schema.find_column_name(part.source_id) or part.name: part.source_id
            for at, part in enumerate(spec.fields)
            if str(part.transform) == "identity"
            and part.source_id in self.schema.field_ids
            and part.source_id not in partition_by
            and file.partition[at] is not None
        }

    def values(self, spec: Any, file: Any, partition_by: dict[int, str]) -> dict[str, str | None]:
        """The partition values of a file, which may have been written with another partitioning."""
        places = {part.source_id: at for at, part in enumerate(spec.fields) if str(part.transform) == "identity"}
        values = {}
        for column, name in partition_by.items():
            if column not in places:
                message = (
                    f"the Iceberg table is partitioned by `{name}` now, and {file.file_path} was written when it was "
                    "not (partition evolution), so that it may hold several values: rewrite the data files of the "
                    "Iceberg table first (rewrite_data_files)"
                )
                raise self.refusal("partition evolution", message)
            values[name] = _text(file.partition[places[column]], str(self.schema.find_type(column)))
        return values


def _text(value: Any, type: str) -> str | None:
    """A partition value as text."""
    if value is None:
        return None
    if type == "boolean":
        return "true" if value else "false"
    if type == "date" and not isinstance(value, date):
        return (_EPOCH + timedelta(days=value)).date().isoformat()
    if type in ("timestamp", "timestamptz") and not isinstance(value, datetime):
        moment = (_EPOCH + timedelta(microseconds=value)).isoformat(sep=" ", timespec="microseconds")
        return f"{moment}Z" if type == "timestamptz" else moment
    if type.startswith("decimal"):
        return f"{value:f}"
    return str(value)


def _file_io(read: Callable[[str], bytes]) -> Any:
    """A `pyiceberg.io.FileIO` that reads whole files, and writes none."""
    from pyiceberg.io import FileIO, InputFile

    class Stored(InputFile):
        def __len__(self) -> int:
            return len(read(self.location))

        def exists(self) -> bool:
            try:
                read(self.location)
            except FileNotFoundError:
                return False
            return True

        def open(self, seekable: bool = True) -> Any:
            return BytesIO(read(self.location))

    class Store(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Stored(location)

        def new_output(self, location: str) -> Any:
            raise NotImplementedError(f"a conversion writes no Iceberg file: {location}")

        def delete(self, location: Any) -> None:
            raise NotImplementedError(f"a conversion deletes no Iceberg file: {location}")

    return Store()
