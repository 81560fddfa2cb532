"""The facts about a table at one version (`Detail`), by the names of Spark's `DESCRIBE DETAIL`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltic.display.instant import instant, shown_time
from deltic.display.strings import counted, html_table, printable, size

__all__ = ["Detail"]


@dataclass(frozen=True, repr=False)
class Detail:
    """The facts about a table at one version. Made by `Table.detail` and `Snapshot.detail`.

    `created_at` and `last_modified` are in UTC, None if the log does not have them. `num_rows` is None if the
    statistics of a file do not have its number of rows. `clustering_columns` are paths. `table_features` are those that
    the protocol action lists, or that its versions imply (PROTOCOL.md: "Table Features").
    """

    version: int
    format: str
    id: str
    name: str | None
    description: str | None
    location: str
    created_at: datetime | None
    last_modified: datetime | None
    partition_columns: list[str]
    clustering_columns: list[str]
    num_files: int
    size_in_bytes: int
    num_rows: int | None
    properties: dict[str, str]
    min_reader_version: int
    min_writer_version: int
    table_features: list[str]

    @classmethod
    def of(
        cls, version: int, location: str, counted: str, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
    ) -> Detail:
        """Combine the counts of the core with the protocol and metadata actions."""
        parsed = json.loads(counted)
        return cls(
            version=version,
            format="delta",
            id=metadata["id"],
            name=metadata.get("name"),
            description=metadata.get("description"),
            location=location,
            created_at=_time(metadata.get("createdTime")),
            last_modified=_time(parsed["last_modified"]),
            partition_columns=list(metadata.get("partitionColumns") or []),
            clustering_columns=parsed["clustering_columns"],
            num_files=parsed["num_files"],
            size_in_bytes=parsed["size_in_bytes"],
            num_rows=parsed["num_rows"],
            properties=dict(metadata.get("configuration") or {}),
            min_reader_version=protocol["minReaderVersion"],
            min_writer_version=protocol["minWriterVersion"],
            table_features=parsed["table_features"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of `DESCRIBE DETAIL` by their names, and `numRows` and `version`."""
        return {
            "format": self.format,
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "location": self.location,
            "createdAt": self.created_at,
            "lastModified": self.last_modified,
            "partitionColumns": list(self.partition_columns),
            "clusteringColumns": list(self.clustering_columns),
            "numFiles": self.num_files,
            "sizeInBytes": self.size_in_bytes,
            "numRows": self.num_rows,
            "properties": dict(self.properties),
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
            "tableFeatures": list(self.table_features),
            "version": self.version,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        rows = "unknown" if self.num_rows is None else f"{self.num_rows:,}"
        lines = [
            ("version", f"{self.version}, of {shown_time(self.last_modified)}"),
            ("name", self.name),
            ("description", self.description),
            ("rows", f"{rows} in {counted(self.num_files, 'file')}, {size(self.size_in_bytes)}"),
            ("partitioned by", ", ".join(self.partition_columns)),
            ("clustered by", ", ".join(self.clustering_columns)),
            ("properties", ", ".join(f"{key}={value}" for key, value in self.properties.items())),
            ("protocol", f"reader {self.min_reader_version}, writer {self.min_writer_version}"),
            ("features", ", ".join(self.table_features)),
            ("created", shown_time(self.created_at)),
            ("id", self.id),
        ]
        return [(name, printable(value)) for name, value in lines if value]

    def __repr__(self) -> str:
        lines = "".join(f"\n  {name}: {value}" for name, value in self.lines())
        return f"Detail({printable(self.location)!r}){lines}"

    def _repr_html_(self) -> str:
        return html_table(self.location, self.lines())


def _time(since: int | None) -> datetime | None:
    return None if since is None else instant(since)
