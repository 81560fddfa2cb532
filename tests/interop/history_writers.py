"""The writers of a history: deltic and delta-spark implement the same steps, delta-rs some of them."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import deltalake
import pyarrow as pa
from history_model import Assignment, Clause, State, Type, arrow_schema, arrow_type, quoted, sql, sql_path, sql_type
from pyspark.sql import Column, DataFrame, SparkSession

import deltic


class Deltic:
    """The steps of deltic."""

    def __init__(self, uri: str, state: State, rng: random.Random) -> None:
        self.uri, self.state, self.rng = uri, state, rng
        self.open: deltic.Transaction | None = None
        """The transaction that steps are part of, if one is open."""

    @property
    def table(self) -> Any:
        return self.open or deltic.Table(self.uri)

    def create(self, partitions: list[str], clusters: list[str]) -> None:
        schema = arrow_schema(self.state.columns)
        deltic.create(self.uri, schema, partitions, cluster_by=clusters or None, properties=self.state.properties)

    def write(self, rows: pa.Table, mode: str = "append", **options: Any) -> None:
        sizes = self.rng.choice([{}, {"max_rows_per_file": 5}, {"row_group_rows": 4}])
        deltic.write(self.uri, rows, mode, **sizes, **options)  # type: ignore[arg-type]

    def append(self, rows: pa.Table, evolves: bool = False) -> None:
        if self.open is not None:
            self.open.append(rows)
        else:
            self.write(rows, schema_mode="merge" if evolves else None)

    def overwrite(self, rows: pa.Table) -> None:
        self.write(rows, "overwrite")

    def overwrite_partitions(self, rows: pa.Table) -> None:
        self.write(rows, "overwrite", partition_overwrite="dynamic")

    def replace_where(self, rows: pa.Table, condition: str) -> None:
        self.write(rows, "overwrite", replace_where=condition)

    def delete(self, condition: str) -> None:
        self.table.delete(condition)

    def update(self, changes: list[Assignment], condition: str) -> None:
        columns = self.state.columns
        paths = {sql_path(columns, one.path): one.text(sql_path(columns, one.path)) for one in changes}
        self.table.update(paths, condition)

    def merge(self, rows: pa.Table, on: str, clauses: tuple[Clause, ...]) -> None:
        columns = self.state.columns
        merge = self.table.merge(rows, on, source_alias="src", target_alias="tgt")
        for one in clauses:
            condition = one.condition and sql(one.condition, columns, "src" if one.of_source else "tgt")
            paths = {
                sql_path(columns, change.path): change.text(sql_path(columns, change.path, "tgt"))
                for change in one.changes or ()
            }
            if one.when == "NOT MATCHED":
                merge.when_not_matched_insert_all(condition)
            elif one.when == "MATCHED" and one.changes is None:
                merge.when_matched_update_all(condition)
            elif one.when == "MATCHED":
                merge.when_matched_update(paths, condition) if paths else merge.when_matched_delete(condition)
            elif paths:
                merge.when_not_matched_by_source_update(paths, condition)
            else:
                merge.when_not_matched_by_source_delete(condition)
        merge.execute()

    def optimize(self, by: list[str], full: bool, where: str | None) -> None:
        names = [self.state.column(key).name for key in by]
        size = self.rng.choice([None, 3000])
        self.table.optimize(where, zorder_by=names or None, full=full, target_file_size=size)

    def purge(self) -> None:
        self.table.purge()

    def forget(self, condition: str) -> None:
        self.table.purge(condition)

    def compact_log(self, start: int, end: int) -> None:
        self.table.compact_log(start, end)

    def restore(self, version: int) -> None:
        self.table.restore(version)

    def vacuum(self, seconds: float, lite: bool) -> None:
        self.table.vacuum(timedelta(seconds=seconds), mode="lite" if lite else "full", force=True)

    def clone(self, target: str, shallow: bool) -> None:
        self.table.clone(target, shallow=shallow)

    def add_column(self, path: str, type: Type) -> None:
        self.table.add_columns(pa.field(path, arrow_type(type)))

    def rename(self, path: str, name: str) -> None:
        self.table.rename_column(path, quoted(name))

    def drop(self, path: str) -> None:
        self.table.drop_columns(path)

    def widen(self, path: str, type: str) -> None:
        self.table.alter_column(path, type=arrow_type(type))

    def properties(self, values: dict[str, str]) -> None:
        if values.pop("delta.enableRowTracking", None):
            self.table.enable_row_tracking()
        if values:
            self.table.set_properties(values)

    def checkpoint(self) -> None:
        self.table.checkpoint()


class Spark:
    """The steps of delta-spark."""

    def __init__(self, spark: SparkSession, uri: str, state: State) -> None:
        self.spark, self.uri, self.state = spark, uri, state

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("@", f"delta.`{self.uri}`")).collect()

    def create(self, partitions: list[str], clusters: list[str]) -> None:
        columns = ", ".join(f"{quoted(one.name)} {sql_type(one.type)}" for one in self.state.columns)
        layout = f"PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
        layout = f"CLUSTER BY ({', '.join(clusters)})" if clusters else layout
        self.sql(f"CREATE TABLE @ ({columns}) USING delta {layout} TBLPROPERTIES ({pairs(self.state.properties)})")

    def frame(self, rows: pa.Table) -> DataFrame:
        """A DataFrame of the rows. PySpark makes TIMESTAMP of Arrow's timestamps without a time zone."""
        frame = self.spark.createDataFrame(rows)

        def column(field: pa.Field) -> Column:
            found = frame[quoted(field.name)]
            return found.cast("timestamp_ntz").alias(field.name) if field.type == pa.timestamp("us") else found

        return frame.select(*map(column, rows.schema))

    def write(self, rows: pa.Table, mode: str = "append", **options: str) -> None:
        frame = self.frame(rows).coalesce(1)
        frame.write.format("delta").mode(mode).options(**options).save(self.uri)

    def append(self, rows: pa.Table, evolves: bool = False) -> None:
        self.write(rows, mergeSchema=str(evolves).lower())

    def overwrite(self, rows: pa.Table) -> None:
        self.write(rows, "overwrite")

    def overwrite_partitions(self, rows: pa.Table) -> None:
        self.write(rows, "overwrite", partitionOverwriteMode="dynamic")

    def replace_where(self, rows: pa.Table, condition: str) -> None:
        self.write(rows, "overwrite", replaceWhere=condition)

    def delete(self, condition: str) -> None:
        self.sql(f"DELETE FROM @ WHERE {condition}")

    def set(self, changes: list[Assignment] | tuple[Assignment, ...], alias: str = "") -> str:
        paths = [sql_path(self.state.columns, one.path, alias) for one in changes]
        return ", ".join(f"{path} = {one.text(path)}" for path, one in zip(paths, changes, strict=True))

    def update(self, changes: list[Assignment], condition: str) -> None:
        self.sql(f"UPDATE @ SET {self.set(changes)} WHERE {condition}")

    def merge(self, rows: pa.Table, on: str, clauses: tuple[Clause, ...]) -> None:
        self.frame(rows).createOrReplaceTempView("news")
        text = f"MERGE INTO @ tgt USING news src ON {on}"
        for one in clauses:
            text += f" WHEN {one.when}"
            if one.condition is not None:
                text += f" AND {sql(one.condition, self.state.columns, 'src' if one.of_source else 'tgt')}"
            if one.when == "NOT MATCHED":
                text += " THEN INSERT *"
            elif one.changes is None:
                text += " THEN UPDATE SET *"
            else:
                text += f" THEN UPDATE SET {self.set(one.changes, 'tgt')}" if one.changes else " THEN DELETE"
        self.sql(text)

    def optimize(self, by: list[str], full: bool, where: str | None) -> None:
        names = [sql_path(self.state.columns, (key,)) for key in by]
        order = f"ZORDER BY ({', '.join(names)})" if by else ""
        self.sql(f"OPTIMIZE @ {'FULL' if full else ''} {f'WHERE {where}' if where else ''} {order}")

    def purge(self) -> None:
        self.sql("REORG TABLE @ APPLY (PURGE)")

    def restore(self, version: int) -> None:
        self.sql(f"RESTORE TABLE @ TO VERSION AS OF {version}")

    def vacuum(self, seconds: float, lite: bool) -> None:
        self.sql(f"VACUUM @ {'LITE ' if lite else ''}RETAIN {round(seconds / 3600)} HOURS")

    def clone(self, target: str, shallow: bool) -> None:
        assert shallow, "open-source delta-spark has no deep clone"
        self.spark.sql(f"CREATE TABLE delta.`{target}` SHALLOW CLONE delta.`{self.uri}`")

    def add_column(self, path: str, type: Type) -> None:
        self.sql(f"ALTER TABLE @ ADD COLUMNS ({path} {sql_type(type)})")

    def rename(self, path: str, name: str) -> None:
        self.sql(f"ALTER TABLE @ RENAME COLUMN {path} TO {quoted(name)}")

    def drop(self, path: str) -> None:
        self.sql(f"ALTER TABLE @ DROP COLUMNS ({path})")

    def widen(self, path: str, type: str) -> None:
        if type == "timestamp_ntz":
            self.sql("ALTER TABLE @ SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
        self.sql(f"ALTER TABLE @ ALTER COLUMN {path} TYPE {type}")

    def properties(self, values: dict[str, str]) -> None:
        self.sql(f"ALTER TABLE @ SET TBLPROPERTIES ({pairs(values)})")

    def checkpoint(self) -> None:
        jvm: Any = self.spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.uri)
        none = jvm.scala.Option.empty()
        log.checkpoint(log.update(False, none, none), none)

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format("delta").options(**options).load(self.uri)


class DeltaRs:
    """The steps of delta-rs, for tables that it can write."""

    VERBS = ("append", "overwrite", "delete", "optimize", "checkpoint")
    FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz", "vacuumProtocolCheck"})

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @classmethod
    def writes(cls, uri: str) -> bool:
        """Whether it writes the table rightly.

        When it removes a file whose path is not ASCII, it spells the path otherwise, and its checkpoints keep the file.
        """
        table = deltic.Table(uri)
        paths, detail = table.files().read_all()["path"].to_pylist(), table.detail()
        is_known = set(detail.table_features) <= cls.FEATURES and not detail.clustering_columns
        return is_known and all(path.isascii() for path in paths)

    def append(self, rows: pa.Table) -> None:
        deltalake.write_deltalake(self.uri, rows, mode="append")

    def overwrite(self, rows: pa.Table) -> None:
        deltalake.write_deltalake(self.uri, rows, mode="overwrite")

    def delete(self, condition: str) -> None:
        deltalake.DeltaTable(self.uri).delete(condition.replace("`", '"'))

    def optimize(self, by: list[str], full: bool, where: str | None) -> None:
        optimizer = deltalake.DeltaTable(self.uri).optimize
        optimizer.z_order(by) if by else optimizer.compact()

    def checkpoint(self) -> None:
        deltalake.DeltaTable(self.uri).create_checkpoint()


def pairs(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
