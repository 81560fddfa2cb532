"""Records what delta-spark reads of a table: the rows of every version, without and with random filters.

A `Maker` runs a recipe's SQL and records each new version after every statement. deltic is compared with the records
later, without Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from filters import Filters, Text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SEEDS = int(os.environ.get("DELTIC_FILTER_SEEDS", "1"))
"""Multiplies the number of filters of a quick run."""
AT_LAST, BEFORE = 30, 6
"""Filters for each seed: on the last version, and on each earlier one."""
AT_ONCE = 120
"""Filters that Spark evaluates in one job."""
ROW_TRACKING = ("_metadata.row_id", "_metadata.row_commit_version")
CHANGES = ("_change_type", "_commit_version", "_commit_timestamp")


class Unsupported(Exception):
    """This release of delta-spark cannot create the table, for the given reason."""


class Decided(NamedTuple):
    """A filter, and Spark's result for each row."""

    filter: Text
    rows: pa.Table
    holds: pa.ChunkedArray


@dataclass
class Version:
    """What Spark reads of one version: the rows, and the results of filters."""

    rows: pa.Table
    decided: list[Decided]


@dataclass
class Feed:
    """What Spark reads of the change data feed of a range of versions."""

    start: int
    end: int
    seen: Version


@dataclass
class Made:
    """A table and everything that Spark read of it."""

    name: str
    uri: str
    versions: dict[int, Version] = field(default_factory=dict)
    feeds: list[Feed] = field(default_factory=list)
    times: dict[int, pa.Table] = field(default_factory=dict)
    """The ids that Spark reads by time travel, by time in milliseconds since 1970."""
    clustered: dict[int, list[str]] = field(default_factory=dict)
    """The clustering columns of a version, according to Spark."""
    columns: tuple[str, ...] = ()
    """Metadata columns of row tracking to read too."""
    unfiltered: frozenset[str] = frozenset()
    """Columns that filters do not name, because Spark's comparisons differ there."""
    spatial: frozenset[str] = frozenset()
    """Columns of geometries and geographies, which Spark returns as WKB."""
    variants: frozenset[str] = frozenset()
    """Variant columns; filters test only whether they are null."""


class Maker:
    """Runs a recipe's SQL and records what Spark reads."""

    def __init__(self, spark: SparkSession, name: str, uri: str) -> None:
        self.spark = spark.newSession()
        self.made = Made(name, uri)
        self.schema: StructType | None = None

    @property
    def table(self) -> str:
        return f"delta.`{self.made.uri}`"

    def set(self, conf: str, value: str | int) -> None:
        self.spark.conf.set(f"spark.databricks.delta.{conf}", str(value))

    def run(self, *statements: str) -> None:
        """Run statements, and record the new versions after each."""
        for statement in statements:
            self.spark.sql(statement.replace("@", self.table)).collect()
            self.record()

    def attempt(self, statement: str, error: str) -> None:
        """Run a statement that some releases refuse with an error that contains the given string."""
        try:
            self.run(statement)
        except Exception as refused:
            if error not in str(refused):
                raise
            raise Unsupported(str(refused).splitlines()[0]) from None

    def append(self, rows: str, mode: str = "append", **options: str) -> None:
        """Write the rows of a query with the DataFrame API."""
        self.spark.sql(rows).write.format("delta").mode(mode).options(**options).save(self.made.uri)
        self.record()

    @property
    def latest(self) -> int:
        return max(int(path.stem) for path in Path(self.made.uri, "_delta_log").glob("[0-9]" * 20 + ".json"))

    def record(self) -> None:
        known, latest = self.made.versions, self.latest
        for version in range(latest + 1):
            if version in known:
                continue
            frame = self.spark.read.format("delta")
            if version < latest:
                frame = frame.option("versionAsOf", version)
            before = known[version - 1].rows if version else None
            known[version] = self.see(frame.load(self.made.uri), f"{version}", before, BEFORE * SEEDS)

    def see(self, frame: DataFrame, label: str, values: pa.Table | None, count: int) -> Version:
        """Read a frame, and evaluate filters on it whose literals are close to `values`."""
        made = self.made
        columns = [*map(self.spell, frame.columns), *(f"{name} AS `{name}`" for name in made.columns)]
        if values is None or self.schema != frame.schema:
            values = frame.selectExpr(*columns).toArrow()
        self.schema = frame.schema
        values = values.select([name for name in frame.columns if name not in made.unfiltered])
        filters = Filters(values, f"{made.name} {label}", made.variants).make(count)
        found: list[Decided] = []
        for start in range(0, len(filters), AT_ONCE):
            some = filters[start : start + AT_ONCE]
            conditions = [f"({text.theirs}) AS __{index}" for index, text in enumerate(some)]
            seen = frame.selectExpr(*columns, *conditions).toArrow()
            rows = seen.select(range(len(columns)))
            found += [Decided(text, rows, seen.column(len(columns) + index)) for index, text in enumerate(some)]
        return Version(found[0].rows, found)

    def changes(self, start: int, end: int) -> None:
        """Record the change data feed of a range of versions."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", start).option("endingVersion", end).load(self.made.uri)
        # Spark returns changes with the current schema, deltic with the schema of the range's last version.
        frame = frame.select(*(self.quote(name) for name in [*self.made.versions[end].rows.schema.names, *CHANGES]))
        self.made.feeds.append(Feed(start, end, self.see(frame, f"{start} to {end}", None, 2 * BEFORE * SEEDS)))

    def look_back(self) -> None:
        """Record time travel to the time of every commit, and to a millisecond before and after it."""
        history = self.spark.sql(f"DESCRIBE HISTORY {self.table}").selectExpr("unix_millis(timestamp) AS at").collect()
        times = sorted(row.at for row in history)
        for at in {near for time in times for near in (time - 1, time, time + 1) if times[0] <= near <= times[-1]}:
            text = datetime.fromtimestamp(at / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
            frame = self.spark.read.format("delta").option("timestampAsOf", text).load(self.made.uri)
            self.made.times[at] = frame.select("id").toArrow()

    def look_at_clustering(self) -> None:
        detail = self.spark.sql(f"DESCRIBE DETAIL {self.table}").collect()[0]
        self.made.clustered[self.latest] = detail.clusteringColumns

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def spell(self, name: str) -> str:
        """Select a column in a form that Arrow supports."""
        if name in self.made.spatial:
            return f"ST_AsBinary({self.quote(name)}) AS {self.quote(name)}"
        if name in self.made.variants:
            return f"to_json({self.quote(name)}) AS {self.quote(name)}"
        return self.quote(name)

    def finish(self) -> Made:
        """Evaluate the filters on the last version."""
        made, last = self.made, self.latest
        frame = self.spark.read.format("delta").load(made.uri)
        made.versions[last] = self.see(frame, "last", made.versions[last].rows, AT_LAST * SEEDS)
        return made
