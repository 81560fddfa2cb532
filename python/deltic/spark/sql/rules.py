"""Lets Spark evaluate the rules of a table that deltic does not know, for the rows of a DataFrame.

The write plan lists them (`_deltic.external_rules`): CHECK constraints, invariants, generated columns and defaults.
Spark computes the columns that the rows lack, in the types of the table, and a column of booleans for each condition.
The tasks demand these booleans, check them, and do not store them. All SQL is analysed before a task runs. It means
what it means in the session: its time zone and `spark.sql.ansi.enabled` apply, as in delta-spark. Proved by
`tests/spark/test_rules.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.utils import is_remote

from deltic import _deltic
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.spark.sql.time_zone import refuse_dependent, session_zone
from deltic.spark.types.column_types import schema_of, to_arrow, type_without_nullability

__all__ = ["Evaluation", "Unevaluated", "analysed", "column", "evaluated", "of_one_value", "refuse_words"]

_NOT_OF_ONE_ROW = re.compile(
    r"\b(?:select|(?:try_)?reflect|java_method)\b|\b(?:over|identifier)\s*\(|--|/\*|[(,.]\s*\*\s*[),]", re.IGNORECASE
)
"""What a rule may not have: it is text of the table's metadata, and must do no more than compute a value of one row.
Comments could hide the rest, and `*` would be all columns of the DataFrame."""
_IDENTITY = "delta.identity.start"
_TIMES = (DateType, TimestampType, TimestampNTZType)


class Unevaluated(Exception):
    """Why Spark does not evaluate some SQL, or deltic does not pass it to Spark."""


def column(name: str) -> Column:
    """The column of a name that may have dots and backticks."""
    return F.col("`" + name.replace("`", "``") + "`")


def evaluated(df: DataFrame, plan: bytes, rows: pa.Schema) -> tuple[DataFrame, list[str]]:
    """The rows with what Spark must evaluate for a write plan, in numbered columns; and the names of the columns.

    Raises `UnsupportedFeatureError` or `InvalidInputError`, naming the rule, for one that Spark does not evaluate
    either.
    """
    # Spark looks up the columns by name later, and takes a dot in a name for a path into a struct.
    rules = _deltic.external_rules(plan)
    if rules is None:
        frame, names = df, list(rows.names)
    else:
        if is_remote():
            raise UnsupportedFeatureError(
                "the table has rules that only Spark evaluates, and Spark Connect does not show what their SQL does: "
                "write with a classic session of Spark",
                features=["rules that only Spark evaluates"],
            )
        frame, names = Evaluation(df, json.loads(rules), list(rows.names)).frame_and_names()
    return frame.toDF(*(f"c{at}" for at in range(len(names)))), names


@dataclass
class Evaluation:
    """The evaluation of some rules on the rows of a DataFrame."""

    df: DataFrame
    rules: dict[str, Any]
    names: list[str]
    """The names of the rows' columns."""
    concerned: str | None = None
    """The name of a column of booleans: the rules concern only the rows for which it is TRUE. None for all rows."""
    prefix: str = field(default_factory=lambda: f"_{uuid.uuid4().hex}_")
    """The beginning of names that no column has."""

    @cached_property
    def columns(self) -> dict[str, StructField]:
        """The columns of the table."""
        return {field.name: field for field in schema_of(self.rules["schema"]).fields}

    @cached_property
    def later(self) -> set[str]:
        """Identity columns that the rows lack: the tasks compute them."""
        given = {name.lower() for name in self.names}
        fields = json.loads(self.rules["schema"])["fields"]
        return {of["name"] for of in fields if _IDENTITY in of["metadata"] and of["name"].lower() not in given}

    @cached_property
    def no_rows(self) -> DataFrame:
        """No rows of the table, with one more column."""
        known = [of for of in self.columns.values() if of.name not in self.later]
        columns = [F.lit(None).cast(of.dataType).alias(of.name) for of in known]
        return self.df.sparkSession.range(0).select(F.col("id").alias(self.prefix), *columns)

    def frame_and_names(self) -> tuple[DataFrame, list[str]]:
        """The rows with what the rules give, and the names of all their columns."""
        given = [f"{self.prefix}given_{at}" for at in range(len(self.names))]
        frame = self._with_given(self.df.toDF(*given), given)
        computed = self.rules["columns"]
        self._refuse_dependent([rule for rule in computed if rule["refusal"] is None])
        frame = self._with_computed(frame, [rule for rule in computed if rule["is_default"]])
        frame = self._with_computed(frame, [rule for rule in computed if not rule["is_default"]])
        conditions = [
            self._of_concerned(self._condition(rule), True).alias(f"{self.prefix}{rule['column']}")
            for rule in self.rules["conditions"]
        ]
        values = [*map(F.col, given), *(column(rule["name"]) for rule in computed), *conditions]
        added = [rule["name"] for rule in computed] + [rule["column"] for rule in self.rules["conditions"]]
        return frame.select(*values), self.names + added

    def _refuse_dependent(self, rules: list[dict[str, Any]]) -> None:
        """Refuse rules that deltic evaluates in UTC in other writes, and the session in its own zone."""
        zone, columns = session_zone(self.df.sparkSession), [to_arrow(StructType(list(self.columns.values())))]
        for rule in rules:
            refuse_dependent(rule["sql"], f"{rule['rule']} ({rule['sql']})", zone, columns, rule["name"])

    def _with_given(self, frame: DataFrame, given: list[str]) -> DataFrame:
        """The rows with the columns of the table as they will be stored, except those that the table computes."""
        positions = {name.lower(): at for at, name in enumerate(self.names)}
        later = self.later | {rule["name"] for rule in self.rules["columns"]}
        stored = []
        for of in self.columns.values():
            at = positions.get(of.name.lower())
            if at is not None:
                values = _as_stored(F.col(given[at]), self.df.schema.fields[at].dataType, of)
            elif of.name not in later:
                values = F.lit(None).cast(of.dataType)
            else:
                continue
            stored.append(self._in_partition(values, of).alias(of.name, metadata={}))
        return frame.select("*", *stored)

    def _with_computed(self, frame: DataFrame, rules: list[dict[str, Any]]) -> DataFrame:
        """The rows with columns of the table that Spark computes. A value is computed once for each row."""
        values = [(f"{self.prefix}value_{rule['name']}", rule) for rule in rules]
        kinds = [self._analysed(rule) for rule in rules]
        frame = frame.select("*", *(self._of_concerned(of_one_value(rule["sql"])).alias(name) for name, rule in values))
        stored = []
        for (name, rule), kind in zip(values, kinds, strict=True):
            of = self.columns[rule["name"]]
            stored.append(self._in_partition(_converted(column(name), kind, of, rule), of).alias(of.name, metadata={}))
        return frame.select("*", *stored)

    def _of_concerned(self, values: Column, otherwise: object = None) -> Column:
        """The values for the rows that the rules concern."""
        if self.concerned is None:
            return values
        return F.when(F.col(f"{self.prefix}given_{self.names.index(self.concerned)}"), values).otherwise(otherwise)

    def _condition(self, rule: dict[str, Any]) -> Column:
        kind = self._analysed(rule)
        if rule["generated"] is not None:
            of = self.columns[rule["generated"]]
            values = _converted(of_one_value(rule["sql"]), kind, of, rule)
            return column(of.name).eqNullSafe(self._in_partition(values, of))
        if not isinstance(kind, BooleanType | NullType):
            _refuse(rule, f"it is not a condition but a value of type {kind.simpleString()}")
        return of_one_value(rule["sql"]).cast("boolean")

    def _in_partition(self, values: Column, of: StructField) -> Column:
        """The values as readers get them: there are no empty strings among partition values."""
        if of.name in self.rules["partition_columns"] and isinstance(of.dataType, StringType | BinaryType):
            return F.when(F.length(values) > 0, values)
        return values

    def _analysed(self, rule: dict[str, Any]) -> DataType:
        """The type of a rule's SQL."""
        is_default = rule.get("is_default", False)
        try:
            refuse_words(rule["sql"])
            # A default names no columns.
            frame = self.no_rows.select(self.prefix) if is_default else self.no_rows
            return analysed(frame, rule["sql"], may_vary=is_default)
        except Unevaluated as why:
            _refuse(rule, str(why))


def refuse_words(sql: str) -> None:
    """Raise `Unevaluated` for SQL that does more than to compute a value of one row."""
    if (found := _NOT_OF_ONE_ROW.search(sql)) is not None:
        raise Unevaluated(f"deltic does not pass SQL with `{found[0]}` to it")


def analysed(frame: DataFrame, sql: str, *, may_vary: bool = False) -> DataType:
    """The type of SQL over the columns of a DataFrame, which has at least one. Raises `Unevaluated`.

    `may_vary`: whether it may have another value each time, as `uuid()` has.
    """
    # Spark replaces it, also in strings, by settings and by variables of the driver's environment.
    if "${" in sql:
        raise Unevaluated("deltic does not pass SQL with `${` to it")
    try:
        # To analyse a subquery Spark would look for what it reads.
        parser = frame.sparkSession._jsparkSession.sessionState().sqlParser()
        if not parser.parsePlan(f"SELECT {sql}").subqueriesAll().isEmpty():
            raise Unevaluated("deltic does not pass SQL with subqueries to it")
        # Beside a column Spark accepts no aggregate.
        value = frame.select(column(frame.columns[0]), of_one_value(sql))
        kind = value.schema.fields[1].dataType
        plan = value._jdf.queryExecution().analyzed()
        is_determined = may_vary or plan.deterministic()
        added = _steps(plan) - _steps(frame._jdf.queryExecution().analyzed())
    except (Py4JError, PySparkException) as error:
        raise Unevaluated(str(error).strip().partition("\n")[0]) from error
    if not is_determined:
        raise Unevaluated("it does not always give the same value for the same row")
    if set(added) != {"Project"}:
        raise Unevaluated("it does not give one value for each row")
    return kind


def _steps(plan: Any) -> Counter[str]:
    """The names of the steps of Spark's plan, such as `Project`."""
    pending, found = [plan], Counter[str]()
    while pending:
        step = pending.pop()
        found[str(step.nodeName())] += 1
        children = step.children()
        pending += [children.apply(at) for at in range(children.size())]
    return found


def of_one_value(sql: str) -> Column:
    """The value of SQL. Inside another expression Spark accepts nothing that makes several rows or columns."""
    return F.coalesce(F.expr(sql))


def _as_stored(values: Column, given: DataType, of: StructField) -> Column:
    """Values of the rows in the type of the table's column; the tasks refuse numbers that are not exact in it."""
    if _is_same(given, of.dataType):
        return values
    kinds = (given, of.dataType)
    floats = [isinstance(kind, FractionalType) and not isinstance(kind, DecimalType) for kind in kinds]
    decimals = [isinstance(kind, DecimalType) for kind in kinds]
    if all(isinstance(kind, NumericType) for kind in kinds) and not (any(floats) and any(decimals)):
        return values.try_cast(of.dataType)
    raise InvalidInputError(
        f"the column `{of.name}` is {given.simpleString()}, and {of.dataType.simpleString()} in the table, which has "
        "rules that Spark evaluates: cast it to the table's type"
    )


def _converted(values: Column, kind: DataType, of: StructField, rule: dict[str, Any]) -> Column:
    """Computed values in the type of their column; a value that it cannot have is an error of the task."""
    wanted = of.dataType
    if _is_same(kind, wanted):
        return values
    if isinstance(kind, NullType):
        return values.cast(wanted)
    both = (kind, wanted)
    is_text = isinstance(wanted, StringType) and isinstance(kind, (NumericType, BooleanType, *_TIMES))
    if not is_text and not any(all(isinstance(one, of_kind) for one in both) for of_kind in (NumericType, _TIMES)):
        _refuse(rule, f"its value is {kind.simpleString()}, and the column is {wanted.simpleString()}")
    converted = values.try_cast(wanted)
    # Numbers keep all digits, as where deltic computes the column.
    is_wrong = converted.isNull()
    if isinstance(kind, NumericType) and isinstance(wanted, NumericType):
        is_wrong |= converted.cast(kind) != values
    message = f"{rule['rule']} ({rule['sql']}) gives a value that the type {wanted.simpleString()} cannot have"
    return F.when(values.isNotNull() & is_wrong, F.raise_error(F.lit(message))).otherwise(converted)


def _is_same(one: DataType, other: DataType) -> bool:
    return bool(type_without_nullability(one) == type_without_nullability(other))


def _refuse(rule: dict[str, Any], why: str) -> NoReturn:
    """Raise the error of a rule that nobody evaluates."""
    refusal = rule["refusal"]
    if refusal is None:
        raise InvalidInputError(
            f"{rule['rule']} ({rule['sql']}) must be evaluated by Spark, as the table has other rules that only Spark "
            f"evaluates, and Spark does not evaluate it: {why}"
        )
    # The message may end with the place in the SQL, on lines of their own.
    first, *place = refusal["message"].split("\n")
    message = "\n".join([f"{first}; Spark does not evaluate it either: {why}", *place])
    if refusal["features"]:
        raise UnsupportedFeatureError(message, features=refusal["features"])
    raise InvalidInputError(message)
