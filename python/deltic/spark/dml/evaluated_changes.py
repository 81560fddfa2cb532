"""Lets Spark evaluate a DELETE, UPDATE or MERGE with SQL that deltic does not know, or a table with such rules.

Tasks read the rows that may change, with their addresses: the file and the position in it. Spark evaluates all SQL of
the change: which rows change, which clause of a merge applies, new values, and the table's rules for the new rows
(`rules`). The rows get as many columns as there are values, and are the source of a merge in the core whose sides are
joined already: a row changes the row at its address. A second function in the same job, or after a shuffle if rows were
joined, writes the files. All SQL is analysed before a task runs. Proved by `tests/spark/test_evaluated_changes.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, NullType, StructField, StructType, VariantType
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.errors import DelticError, InvalidInputError, UnsupportedFeatureError
from deltic.monitoring.progress_bars import Work
from deltic.spark.dml.frame_source import (
    PLACED_COLUMNS,
    FrameSource,
    StoredSource,
    carry_out,
    inserted_rows,
    inserter,
    part_changer,
    placed_reader,
    task_changer,
)
from deltic.spark.options import is_utc
from deltic.spark.sql.caller_sql import comparisons, in_spark, is_read, kind_of, path_of, quoted, refuse_time
from deltic.spark.sql.rules import Evaluation, Unevaluated, analysed, column, evaluated, of_one_value, refuse_words
from deltic.spark.sql.time_zone import dependence, refuse_conversion, refuse_dependent, session_zone
from deltic.spark.tasks import collect, spread
from deltic.spark.types.column_types import has_type, schema_of, to_arrow, without_chars
from deltic.spark.types.schema import nullable
from deltic.spark.writing.write import write_collected

__all__ = ["EvaluatedChange"]

_GENERATED = "delta.generationExpression"
_FILLED = (_GENERATED, "delta.identity.start")
_CONNECT = (
    "in Spark Connect deltic cannot see what the SQL does, so that only classic sessions of Spark evaluate SQL that "
    "deltic does not know"
)


@dataclass
class _Clause:
    """A clause of a merge; an UPDATE and a DELETE have one, whose condition is checked before."""

    number: int
    when: str
    condition: str | None
    set: list[tuple[str, str | None]] | None
    """Columns and SQL, None for a given value; None if rows are deleted."""
    values: list[pa.Array]
    """The given values."""
    rules: dict[str, Any] | None = None
    """The rules that Spark evaluates for updated rows, as `_deltic.external_rules` describes them."""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns that Spark computes, by the columns that they are set to."""
    stored: dict[str, str] = field(default_factory=dict)
    """SQL of the table's defaults for columns that are set to DEFAULT."""

    @property
    def name(self) -> str:
        return f"the condition of a clause for rows that are {self.when}"


class EvaluatedChange:
    """A change of rows whose SQL Spark evaluates."""

    def __init__(
        self,
        core: _deltic.Transaction,
        spark: SparkSession,
        settings: dict[str, str] | None,
        limits: tuple[int, int],
        refused: DelticError,
    ) -> None:
        """`limits`: of the tasks, as for `_deltic.plan_row_change`. `refused`: why deltic does not evaluate the SQL.

        Raises that in Spark Connect.
        """
        if is_remote():
            if isinstance(refused, UnsupportedFeatureError):
                raise UnsupportedFeatureError(f"{refused}; {_CONNECT}", features=refused.features) from refused
            raise refused
        self._core, self._spark, self._settings, self._limits = core, spark, settings, limits
        self._refused = refused
        schema = json.loads(core.snapshot().metadata())["schemaString"]
        fields = json.loads(schema)["fields"]
        self._fields = {of["name"]: {**of, "metadata": of.get("metadata") or {}} for of in fields}
        self._schema = pa.schema(core.snapshot().schema())
        self._zone = session_zone(spark)
        self._prefix = f"_{uuid.uuid4().hex}_"
        self._target, self._source = f"{self._prefix}target", f"{self._prefix}source"

    def check_unknown(self, sql: Iterable[str]) -> None:
        """Raise deltic's error if it is not about SQL that deltic does not know, or such rules of the table."""
        if isinstance(self._refused, UnsupportedFeatureError) or not all(map(is_read, sql)):
            return
        with suppress(DelticError):
            if self._rules(set()) is not None:
                return
        raise self._refused

    def delete(self, filter: str | None) -> dict[str, Any]:
        """Delete rows; return the counts."""
        return self._of_table("delete", _Clause(0, "matched", filter, None, []))

    def update(self, set: list[tuple[str, str | None]], values: pa.Table, filter: str | None) -> dict[str, Any]:
        """Set columns; return the counts."""
        given = [column.combine_chunks() for column in values.columns]
        return self._of_table("update", _Clause(0, "matched", filter, set, given))

    def _of_table(self, operation: str, clause: _Clause) -> dict[str, Any]:
        self._prepare([clause])
        self._named = self._columns_in(self._sql_of([clause]))
        none, filter = self._no_rows(), clause.condition
        if filter is not None:
            self._check(filter, "the condition", none, is_condition=True)
        self._check_values(clause, none)

        def of_rows(targets: DataFrame) -> DataFrame:
            return self._computed(targets.withColumn(self._of("number"), F.lit(None).cast("long")), [clause])

        rows = self._schema_of_computed(of_rows(none))
        merge = self._request([clause], {"on": "TRUE", "operation": operation})
        known = [] if filter is None else [part for part in comparisons(self._spark, filter) if self._is_filter(part)]
        summary = pa.Table.from_batches([pa.record_batch(_deltic.SourceSummary(None).to_batch())])
        planned = _deltic.plan_row_change(
            self._core, ("merge", *merge, rows.empty_table()), " AND ".join(known) or None, self._limits, summary
        )
        assert planned is not None, "it was not committed before"

        def change(tasks: Sequence[bytes]) -> list[bytes]:
            if not tasks:
                return []
            changer = task_changer(rows, self._settings, merge, tasks)
            work = Work(operation.upper(), "tasks", len(tasks))
            return collect(self._placed(of_rows(self._targets(tasks))), changer, work)

        return carry_out(self._core, planned, change, None, self._settings)

    def merge(self, source: FrameSource, request: str, values: pa.Table) -> dict[str, Any]:
        """Merge rows; return the counts."""
        asked = json.loads(request)
        if asked["evolves"]:
            self._refuse("a merge with_schema_evolution", "deltic does not pass it to Spark: add the columns before")
        if has_type(source.columns, VariantType):
            self._refuse("a merge of a source with variants", "deltic does not pass it to Spark: use their JSON text")
        on, aliases = asked["on"], (asked["target_alias"], asked["source_alias"])
        # From now on the core lets Spark evaluate the rules for inserted rows.
        self._rules(set())
        clauses = self._clauses(asked["clauses"], values, source.schema, aliases)
        self._prepare(clauses)
        self._named = self._columns_in([on, *self._sql_of(clauses)])
        no_targets = self._no_rows().alias(aliases[0])
        no_source = self._spark.createDataFrame([], source.columns)
        no_source = no_source.withColumn(self._of("number"), F.lit(0).cast("long")).alias(aliases[1])
        visible = {
            "matched": no_targets.crossJoin(no_source),
            "not matched": no_source,
            "not matched by source": no_targets,
        }
        self._check(on, "the merge condition", visible["matched"], is_condition=True, is_join=True)
        for clause in clauses:
            if clause.condition is not None:
                self._check(clause.condition, clause.name, visible[clause.when], is_condition=True)
            self._check_values(clause, visible[clause.when])
        changes = [clause for clause in clauses if clause.when != "not matched"]
        inserts = [clause for clause in clauses if clause.when == "not matched"]
        is_by_source = any(clause.when == "not matched by source" for clause in clauses)
        is_deleting = [(c.condition, c.set) for c in clauses if c.when == "matched"] == [(None, None)]

        def of_pairs(targets: DataFrame, rows: DataFrame) -> DataFrame:
            pairs = targets.join(rows, F.expr(in_spark(on)), "left" if is_by_source else "inner")
            found = self._computed(pairs, changes, keeps_unchanged=bool(inserts), alias=aliases[0])
            # A row that is deleted may match several times.
            return found.dropDuplicates([self._of(c) for c in ("part", "file", "position")]) if is_deleting else found

        changed = self._schema_of_computed(of_pairs(no_targets, no_source))
        inserted = self._schema_of_computed(self._computed(no_source, inserts))
        all_columns = pa.schema([*source.schema, *changed, *(of for of in inserted if of.name not in changed.names)])
        planning = self._planning((on, aliases), clauses, all_columns, is_by_source)
        merge = self._request(changes, {"on": "TRUE"})
        insert_merge = self._request(inserts, {"on": "TRUE"})
        keys = _deltic.merge_keys(self._core, all_columns, *planning)
        with source.used():
            stored = StoredSource(source, keys)
            rows = stored.frame.toDF(*source.schema.names, self._of("number")).alias(aliases[1])
            planned = _deltic.plan_row_change(
                self._core, ("merge", *planning, all_columns.empty_table()), None, self._limits, stored.summaries
            )
            assert planned is not None, "it was not committed before"
            tasks = planned.tasks()
            targets = (self._targets(tasks) if tasks else self._no_rows()).alias(aliases[0])

            def change(tasks: Sequence[bytes]) -> list[bytes]:
                if not tasks:
                    return []
                described = self._spark.createDataFrame(list(enumerate(map(bytes, tasks))), "part int, task binary")
                placed = self._placed(of_pairs(targets, rows)).drop("task")
                parts = described.unionByName(placed, allowMissingColumns=True)
                # Before Spark 4.1 some partitions have several tasks, and others none.
                divide = getattr(parts, "repartitionById", parts.repartition)
                ordered = divide(len(tasks), F.col("part")).sortWithinPartitions("part", F.col("task").isNull())
                ordered = ordered.select(*PLACED_COLUMNS, *map(column, changed.names))
                changer = part_changer(changed, self._settings, merge, source.memory_limit, PLACED_COLUMNS)
                return collect(ordered, changer, Work("MERGE", "tasks", len(tasks)))

            def insert(plan: bytes, described: tuple[bytes, int]) -> list[bytes]:
                unmatched = rows.join(targets, F.expr(in_spark(on)), "left_anti").alias(aliases[1])
                new = self._computed(unmatched, inserts)
                new = new.select(*map(column, inserted.names), column(self._of("number")).alias("number"))
                return self._inserted(new, inserted, plan, (insert_merge, described))

            return carry_out(self._core, planned, change, insert, self._settings)

    def _inserted(
        self,
        new: DataFrame,
        schema: pa.Schema,
        plan: bytes,
        merge: tuple[tuple[str, pa.Table], tuple[bytes, int]],
    ) -> list[bytes]:
        """Write inserted rows, and return the files."""
        work = Work("MERGE", "rows")
        if _deltic.external_rules(plan) is None:
            return collect(new, inserter(schema, plan, self._settings, *merge), work)
        request, described = merge
        rows = pa.schema(_deltic.MergeInserter(described[0], schema, *request, described[1]).schema)
        frame = new.mapInArrow(inserted_rows(schema, *merge), self._spark_schema(rows.names))
        return write_collected(evaluated(frame, plan, rows), plan, self._settings, work)

    def _of(self, name: str) -> str:
        """The name of a column that is no column of the table or the source."""
        return self._prefix + name

    def _spark_schema(self, names: Sequence[str]) -> StructType:
        fields = [self._fields[name] for name in names]
        return nullable(without_chars(schema_of(json.dumps({"type": "struct", "fields": fields}))))

    @cached_property
    def _target_schema(self) -> StructType:
        """The rows that tasks read: their places, and the columns that SQL names."""
        kinds = {"part": IntegerType(), "file": LongType(), "position": LongType()}
        places = [StructField(self._of(name), kind) for name, kind in kinds.items()]
        return StructType([*places, *self._spark_schema(self._named).fields])

    def _no_rows(self) -> DataFrame:
        return self._spark.createDataFrame([], self._target_schema)

    def _targets(self, tasks: Sequence[bytes]) -> DataFrame:
        """The rows that may change."""
        reader = placed_reader(self._settings, self._named, self._target_schema)
        return spread(self._spark, tasks, len(tasks)).mapInArrow(reader, self._target_schema)

    def _columns_in(self, texts: Iterable[str]) -> list[str]:
        """The columns of the table that SQL may name: those whose names are in its text."""
        text = "\n".join(texts).replace("``", "`").replace('""', '"').casefold()
        return [name for name in self._fields if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text)]

    def _sql_of(self, clauses: Sequence[_Clause]) -> Iterator[str]:
        for clause in clauses:
            yield clause.condition or ""
            yield from (sql for _column, sql in clause.set or [] if sql is not None)
            if clause.rules is not None:
                yield from (rule["sql"] for rule in (*clause.rules["conditions"], *clause.rules["columns"]))
                yield from (rule["generated"] or "" for rule in clause.rules["conditions"])

    def _clauses(
        self, asked: list[Any], values: pa.Table, source: pa.Schema, aliases: tuple[str, str]
    ) -> list[_Clause]:
        """The clauses of a merge. Those for all columns name them."""
        given = iter(values.columns)
        clauses = []
        for number, clause in enumerate(asked):
            found, of_clause = clause["set"], []
            if found is not None:
                names = list(self._fields)
                found = [(_deltic.without_alias(name, aliases[0], names, True), sql) for name, sql in found]
                of_clause = [next(given).combine_chunks() for _column, sql in found if sql is None]
            elif clause["except"] is not None:
                found = self._all_columns(clause, source, aliases)
            clauses.append(_Clause(number, clause["when"], clause["condition"], found, of_clause))
        return clauses

    def _all_columns(
        self, clause: dict[str, Any], source: pa.Schema, aliases: tuple[str, str]
    ) -> list[tuple[str, str | None]]:
        left_out = {
            _deltic.without_alias(name, aliases[0], list(self._fields), True).casefold() for name in clause["except"]
        }
        names = {name.casefold(): name for name in source.names}
        found: list[tuple[str, str | None]] = []
        for name, of in self._fields.items():
            is_identity = "delta.identity.start" in of["metadata"] and clause["when"] == "matched"
            if name.casefold() in left_out or of["type"] in ("void", "null") or is_identity:
                continue
            if (given := names.get(name.casefold())) is not None:
                found.append((quoted(name), f"{quoted(aliases[1])}.{quoted(given)}"))
            elif not any(key in of["metadata"] for key in (*_FILLED, "CURRENT_DEFAULT")):
                raise InvalidInputError(
                    f"the source has no column `{name}`; give it, or name it in except_columns"
                ) from self._refused
        return found

    def _prepare(self, clauses: list[_Clause]) -> None:
        """Find the rules for updated rows, and the defaults that columns are set to."""
        for clause in clauses:
            if clause.set is None or clause.when == "not matched":
                continue
            clause.rules = self._rules({path_of(column, self._fields)[0].casefold() for column, _sql in clause.set})
            for name, sql in clause.set:
                path = path_of(name, self._fields)
                default = self._fields.get(path[0], {}).get("metadata", {}).get("CURRENT_DEFAULT")
                if sql is not None and sql.strip().upper() == "DEFAULT" and len(path) == 1 and default is not None:
                    clause.stored[name] = default

    def _rules(self, assigned: set[str]) -> dict[str, Any] | None:
        """The rules of the table that Spark must evaluate if these columns are set; None if there are none."""

        def is_given(of: pa.Field) -> bool:
            metadata = self._fields[of.name]["metadata"]
            is_set = of.name.casefold() in assigned
            return not pa.types.is_null(of.type) and (is_set or not any(key in metadata for key in _FILLED))

        given = pa.schema([of for of in self._schema if is_given(of)])
        rules = _deltic.row_rules(self._core, given)
        return None if rules is None else dict(json.loads(rules))

    def _check_values(self, clause: _Clause, visible: DataFrame) -> None:
        """Analyse the values that a clause sets columns to, and number the columns in which Spark computes them."""
        given = iter(clause.values)
        for name, sql in clause.set or []:
            argument = f"the value of column `{name}`"
            if sql is None:
                refuse_conversion(next(given).type, name, self._schema, argument, self._zone)
                continue
            default = clause.stored.get(name)
            if default is None and sql.strip().upper() == "DEFAULT":
                continue
            kind = self._check(sql, argument, visible) if default is None else self._check_stored(default, name)
            if isinstance(kind, NullType):
                continue
            if has_type(kind, NullType):
                self._refuse(f"{argument} ({sql})", "a NULL or an empty collection in it has no type: CAST it")
            arrow = to_arrow(StructType([StructField(name, kind)]), voids=True).field(0).type
            refuse_conversion(arrow, name, self._schema, argument, self._zone)
            clause.columns[name] = self._of(f"value_{clause.number}_{len(clause.columns)}")

    def _check_stored(self, sql: str, name: str) -> DataType:
        """The type of a default."""
        argument = f"the default of the column `{name}`"
        try:
            _deltic.evaluate(pa.table({"none": pa.array([], pa.int64())}), sql)
        except DelticError:
            pass
        else:
            # Other writes evaluate it in UTC.
            refuse_dependent(sql, f"{argument} ({sql})", self._zone, [], name)
        try:
            refuse_words(sql)
            # A default names no columns.
            return analysed(self._spark.range(0).toDF(self._prefix), sql, may_vary=True)
        except Unevaluated as why:
            self._refuse(f"{argument} ({sql})", str(why))

    def _check(
        self, sql: str, argument: str, visible: DataFrame, *, is_condition: bool = False, is_join: bool = False
    ) -> DataType:
        """The type of SQL of the caller."""
        try:
            if is_join:
                # The rows are joined twice: those that match, and those that do not.
                refuse_time(sql)
            return kind_of(visible, sql, is_condition=is_condition)
        except Unevaluated as why:
            self._refuse(f"{argument} ({sql})", str(why))

    def _refuse(self, what: str, why: str) -> NoReturn:
        """Raise the error of SQL that nobody evaluates."""
        if "UNRESOLVED_COLUMN" in why and isinstance(self._refused, InvalidInputError):
            # Deltic's error says the same.
            raise self._refused
        # The message may end with the place in the SQL, on lines of their own.
        first, *place = str(self._refused).split("\n")
        message = "\n".join([f"{first}; Spark does not evaluate {what} either: {why}", *place])
        if isinstance(self._refused, UnsupportedFeatureError):
            raise UnsupportedFeatureError(message, features=self._refused.features) from self._refused
        raise InvalidInputError(message) from self._refused

    def _computed(
        self, frame: DataFrame, clauses: Sequence[_Clause], keeps_unchanged: bool = False, alias: str | None = None
    ) -> DataFrame:
        """The rows that change, with the number of their clause and what it needs. Other columns are left out.

        `keeps_unchanged`: whether rows are kept that match and that no clause changes. `alias`: that of the table.
        """
        names = [name for name in map(self._of, ("part", "file", "position", "number")) if name in frame.columns]
        places, number = [column(name) for name in names], F.col(self._of("number"))
        of_table = "" if alias is None else f"{quoted(alias)}."
        old = [F.col(f"{of_table}{quoted(name)}") for name in self._named if self._of("file") in names]
        numbers = [F.lit(None).cast("int")]
        values: list[Column] = []
        for when in ("matched", "not matched", "not matched by source"):
            of_kind = [clause for clause in clauses if clause.when == when]
            if not of_kind:
                continue
            if when == "not matched by source":
                # SQL may name columns without the alias, and those of the source are not visible.
                frame = frame.select(*places, *numbers[1:], *values, *old)
            applies, never = F.lit(True), F.lit(False)
            if alias is not None:
                applies = number.isNotNull() if when == "matched" else number.isNull()
            elif when == "not matched":
                # Spark does not know that it is FALSE, and computes conditions after the join that finds the rows.
                never = F.monotonically_increasing_id() < 0
            chosen = self._of(f"clause_{len(numbers)}")
            frame = frame.select("*", _first_clause(of_kind, applies, never).alias(chosen))
            new = _new_values(of_kind, F.col(chosen))
            frame = frame.select("*", *(value.alias(name) for name, value in new.items()))
            numbers.append(F.col(chosen))
            values += map(column, new)
        which = F.coalesce(*numbers)
        keeps = which.isNotNull() | number.isNotNull() if keeps_unchanged else which.isNotNull()
        if self._of("file") in names:
            # Never so, but Spark does not know: it would have no partitions for a condition that it finds FALSE.
            keeps |= F.col(self._of("file")).isNull()
        frame = frame.where(keeps)
        has_rules = any(clause.rules is not None for clause in clauses)
        kept = [of.alias(self._of(f"old_{name}")) for of, name in zip(old, self._named, strict=False) if has_rules]
        computed = frame.select(*places, which.alias(self._of("clause")), *values, *kept)
        for clause in clauses:
            if clause.rules is not None:
                computed = self._with_rules(computed, clause)
        return computed.select(*(column(name) for name in computed.columns if not name.startswith(self._of("old_"))))

    def _with_rules(self, frame: DataFrame, clause: _Clause) -> DataFrame:
        """The rows with the columns that the table computes, and its conditions, for the rows of a clause."""
        assert clause.rules is not None
        computed = {rule["name"] for rule in clause.rules["columns"]}
        texts = [*self._sql_of([_Clause(0, "", None, None, [], clause.rules)])]
        concerned = self._of("concerned")
        frame = frame.withColumn(concerned, column(self._of("clause")).eqNullSafe(F.lit(clause.number)))
        names = frame.columns
        new = {name: self._new_value(name, clause) for name in self._columns_in(texts) if name not in computed}
        values = [F.when(F.col(concerned), value).alias(self._of(f"new_{at}")) for at, value in enumerate(new.values())]
        evaluation = Evaluation(frame.select("*", *values), clause.rules, [*names, *new], concerned)
        rows, found = evaluation.frame_and_names()
        kept = {name: name for name in names if name != concerned}
        for rule in clause.rules["columns"]:
            kept[rule["name"]] = clause.columns.setdefault(
                quoted(rule["name"]), self._of(f"value_{clause.number}_{len(clause.columns)}")
            )
        for rule in clause.rules["conditions"]:
            kept[rule["column"]] = self._condition_column(clause, rule["column"])
        numbered = rows.toDF(*(f"c{at}" for at in range(len(found))))
        return numbered.select(*(F.col(f"c{at}").alias(kept[name]) for at, name in enumerate(found) if name in kept))

    def _condition_column(self, clause: _Clause, name: str) -> str:
        return self._of(f"condition_{clause.number}_{name}")

    def _new_value(self, name: str, clause: _Clause) -> Column:
        """The value of a column in the rows that a clause updates."""
        given = iter(clause.values)
        for assigned, sql in clause.set or []:
            literal = next(given) if sql is None else None
            path = path_of(assigned, self._fields)
            if path[0] != name:
                continue
            if len(path) > 1:
                self._refuse(f"the rules of the table for `{assigned}`", f"set the whole column `{name}`")
            kind = self._spark_schema([name]).fields[0].dataType
            if literal is not None:
                try:
                    return F.lit(literal[0].as_py()).cast(kind)
                except (PySparkException, Py4JError) as error:
                    self._refuse(f"deltic.lit for `{name}`", f"write the value as SQL ({str(error).splitlines()[0]})")
            return column(clause.columns[assigned]) if assigned in clause.columns else F.lit(None).cast(kind)
        return column(self._of(f"old_{name}"))

    def _schema_of_computed(self, frame: DataFrame) -> pa.Schema:
        """The columns that Spark has computed, of rows whose places are left out."""
        places = {self._of(name) for name in ("part", "file", "position", "number")}
        kept = [of for of in frame.schema.fields if of.name not in places]
        return to_arrow(nullable(StructType(kept)), voids=True, binaries=True)

    def _placed(self, frame: DataFrame) -> DataFrame:
        """The rows as a task takes them."""
        none = {"task": F.lit(None).cast("binary"), "failure": F.lit(None).cast("binary")}
        places = [none.get(name, column(self._of(name))).alias(name) for name in PLACED_COLUMNS]
        taken = {self._of(name) for name in PLACED_COLUMNS}
        return frame.select(*places, *(column(name) for name in frame.columns if name not in taken))

    def _request(
        self, clauses: Sequence[_Clause], more: dict[str, Any], source_alias: str | None = None
    ) -> tuple[str, pa.Table]:
        """A merge, as the core takes it, of the rows that Spark has computed."""
        source = quoted(source_alias or self._source)
        asked = []
        for clause in clauses:
            found: list[tuple[str, str | None]] | None = None
            if clause.set is not None:
                found = []
                for name, sql in clause.set:
                    is_null = sql is not None and sql.strip().upper() != "DEFAULT"
                    found.append((name, "NULL" if is_null and name not in clause.columns else sql))
                computed = {name: f"{source}.{quoted(value)}" for name, value in clause.columns.items()}
                found = [(name, computed.pop(name, sql)) for name, sql in found]
                # Columns that the table generates.
                found += computed.items()
            applies = f"{source}.{quoted(self._of('clause'))} = {clause.number}"
            external = None if clause.rules is None else clause.rules["external"]
            if external is not None:
                conditions = [
                    {**rule, "column": self._condition_column(clause, rule["column"])}
                    for rule in external["conditions"]
                ]
                external = {**external, "conditions": conditions}
            when = clause.when if clause.when == "not matched" else "matched"
            asked.append({"when": when, "condition": applies, "set": found, "except": None, "external": external})
        if not asked:
            # Tasks find the rows of the source that match, and change none.
            never = f"{source}.{quoted(self._of('clause'))} < 0"
            asked.append({"when": "matched", "condition": never, "set": None, "except": None})
        sides = {"source_alias": source_alias or self._source, "target_alias": self._target, "evolves": False}
        values = [value for clause in clauses for value in clause.values]
        table = pa.Table.from_arrays(values, names=[str(at) for at in range(len(values))])
        return json.dumps({**sides, "clauses": asked, **more}), table

    def _planning(
        self, condition: tuple[str, tuple[str, str]], clauses: list[_Clause], columns: pa.Schema, is_by_source: bool
    ) -> tuple[str, pa.Table]:
        """A merge by which the core chooses files: it has those parts of the condition that the core knows."""
        on, aliases = condition
        sides = {"target_alias": aliases[0]}

        def with_condition(on: str) -> tuple[str, pa.Table]:
            text, values = self._request(clauses, {"on": on, **sides}, aliases[1])
            asked = json.loads(text)
            if is_by_source:
                # All files are read.
                nothing = {"when": "not matched by source", "condition": None, "set": None, "except": None}
                asked["clauses"].append(nothing)
            return json.dumps(asked), values

        def is_known(part: str) -> bool:
            try:
                _deltic.merge_keys(self._core, columns, *with_condition(part))
            except DelticError:
                return False
            return is_utc(self._zone) or dependence(part, [self._schema, columns]) is None

        known = [part for part in comparisons(self._spark, on) if is_known(part)]
        return with_condition(" AND ".join(known) or "TRUE")

    def _is_filter(self, part: str) -> bool:
        """Whether deltic can choose files by a condition, which means the same to it."""
        try:
            self._core.snapshot().plan(None, part)
            return is_utc(self._zone) or dependence(part, [self._schema]) is None
        except DelticError:
            return False


def _first_clause(clauses: Sequence[_Clause], applies: Column, never: Column) -> Column:
    """The number of the first clause whose condition is TRUE, for rows to which such clauses apply."""
    number = F.lit(None).cast("int")
    for clause in reversed(clauses):
        holds = applies if clause.condition is None else applies & (of_one_value(in_spark(clause.condition)) | never)
        number = F.when(holds, F.lit(clause.number)).otherwise(number)
    return number


def _new_values(clauses: Sequence[_Clause], number: Column) -> dict[str, Column]:
    """The values that Spark computes, by their names, each for the rows of its clause."""
    return {
        clause.columns[name]: F.when(number == clause.number, of_one_value(clause.stored.get(name) or in_spark(sql)))
        for clause in clauses
        for name, sql in clause.set or []
        if sql is not None and name in clause.columns
    }
