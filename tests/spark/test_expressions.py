"""Expressions mean the same in deltic as in Spark with ANSI mode and UTC: fixed and random cases, filters.

Both evaluate the same SQL on the same rows; types, values and errors must agree. Random expressions leave out the
differences that `docs/expressions.md` lists.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import session_settings
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import deltic
from deltic import _deltic

CASES = Path(__file__).parents[1] / "data" / "text" / "expression_values.txt"
NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
SECONDS = 60
ROUNDS = 12
SEED = int(os.environ.get("DELTIC_EXPRESSIONS_SEED", "7"))


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with deltic's semantics, and without code generation, which would compile each expression."""
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    with session_settings(spark, wanted):
        yield spark


def cases() -> list[tuple[str, str]]:
    """The fixed cases: expressions, and deltic's results."""
    found = []
    for block in re.split(r"\n\n+", CASES.read_text()):
        if "\n----\n" in block:
            text, result = block.split("\n----\n")
            found.append((text, result.strip("\n")))
    return found


def theirs(text: str) -> str:
    """An expression in Spark's dialect, which has fewer typed literals."""
    text = re.sub(r"\bdecimal '([^']*)'", r"\1BD", text)
    return re.sub(r"\b(DOUBLE|FLOAT|int|bigint) ?'([^']*)'", r"CAST('\2' AS \1)", text)


def spelled(text: str, result: str) -> list[str]:
    """The columns of a query that return type and value of an expression."""
    text = theirs(text)
    value = f"hex({text})" if result.startswith("binary ") else f"CAST(({text}) AS STRING)"
    return [f"typeof({text})", value]


def shown(kind: str, value: str | None) -> str:
    """A result in the notation of the fixed cases."""
    names = {new: old for old, new in NAMES.items()}
    kind = names.get(kind, kind)
    if value is not None and kind == "binary":
        value = f"X'{value}'"
    if value is not None and kind.startswith("timestamp"):
        value = f"{value}.000000" if "." not in value else value + "0" * (6 - len(value.split(".")[1]))
    return f"{kind} {'NULL' if value is None else value}"


def test_fixed_cases(utc: SparkSession) -> None:
    wrong, good = [], []
    for text, result in cases():
        if result.startswith("error: "):
            try:
                row = utc.sql("SELECT " + ", ".join(spelled(text, result))).collect()[0]
            except PySparkException:
                continue
            if "is not supported" not in result:
                wrong.append(f"{text}: {shown(row[0], row[1])}, and deltic: {result}")
        else:
            good.append((text, result))
    for start in range(0, len(good), 50):
        group = good[start : start + 50]
        try:
            rows = [utc.sql("SELECT " + ", ".join(c for case in group for c in spelled(*case))).collect()[0]]
            values = list(zip(rows[0][::2], rows[0][1::2], strict=True))
        except PySparkException:
            values = []
            for case in group:
                try:
                    row = utc.sql("SELECT " + ", ".join(spelled(*case))).collect()[0]
                    values.append((row[0], row[1]))
                except PySparkException as error:
                    values.append(("error", str(error).splitlines()[0]))
        for (text, result), (kind, value) in zip(group, values, strict=True):
            answer = shown(kind, value)
            if answer.replace("void NULL", "NULL") != result.replace("void NULL", "NULL"):
                wrong.append(f"{text}: {answer}, and deltic: {result}")
    assert not wrong, "\n" + "\n".join(wrong)


def rows(mild: bool) -> pa.Table:
    """Values of every type: small ones if `mild`, else also the extremes of their types."""

    def whole(bits: int, kind: pa.DataType) -> pa.Array:
        ends = [] if mild else [2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
        return column([0, 1, -1, None, 2, 7, -3, 5, 10, 100, None, *ends], kind)

    def column(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[(row * 7 + 3) % len(values)] for row in range(40)], kind)

    def decimals(values: list[str | None], precision: int, scale: int) -> pa.Array:
        return column([None if v is None else Decimal(v) for v in values], pa.decimal128(precision, scale))

    floats = [0.0, -0.0, 1.5, None, -2.5, 0.1, 1e3, float("nan"), 100.0]
    ends = [] if mild else [float("inf"), float("-inf"), 1e300, -1e20]
    days = [date(2024, 2, 29), date(1970, 1, 1), None, date(1582, 10, 4), date(1582, 10, 15), date(2023, 12, 31)]
    days += [date(1969, 12, 31), date(2000, 2, 29)] + ([] if mild else [date(9999, 12, 31), date(1, 1, 1)])
    moments = [datetime(d.year, d.month, d.day, 23, 59, 58, 7) if d else None for d in days]
    moments += [datetime(2024, 2, 29), datetime(2024, 3, 31, 1, 2, 3, 450000)]
    texts = ["", "a", "abc", None, " x ", "é€", "5", "-7", "1.5", "Ab_%c", "2024-02-29", "äöü ß", "aXbXc"]
    return pa.table(
        {
            "b": whole(8, pa.int8()),
            "h": whole(16, pa.int16()),
            "i": whole(32, pa.int32()),
            "l": whole(64, pa.int64()),
            "f": column(floats + ends[:2], pa.float32()),
            "d": column(floats + ends, pa.float64()),
            "m": decimals(["0", "1.25", None, "-3.50", "99.99", "0.05"] + ([] if mild else ["99999999.99"]), 10, 2),
            "w": decimals(["0", "1", None, "-1.5", "12345678.0000000001"] + ([] if mild else ["9" * 28]), 38, 10),
            "s": column(texts, pa.string()),
            "t": column(["abc", "", "c", None, "é", "X", "b"], pa.string()),
            "x": column([b"", b"a", None, b"abc", b"\xc3\xa9"], pa.binary()),
            "y": column([True, False, None], pa.bool_()),
            "e": column(days, pa.date32()),
            "z": column([m.replace(tzinfo=timezone.utc) if m else None for m in moments], pa.timestamp("us", "UTC")),
            "n": column(moments, pa.timestamp("us")),
        }
    )


COLUMNS = {
    "byte": "b", "short": "h", "int": "i", "long": "l", "float": "f", "double": "d", "decimal": "m", "wide": "w",
    "string": "s", "binary": "x", "boolean": "y", "date": "e", "timestamp": "z", "ntz": "n",
}  # fmt: skip
WHOLE = ["byte", "short", "int", "long"]
NUMBERS = [*WHOLE, "float", "double", "decimal", "wide"]
SQL = {
    "decimal": "decimal(10,2)",
    "wide": "decimal(38,10)",
    "ntz": "timestamp_ntz",
    "long": "bigint",
    "byte": "tinyint",
}


def framed(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows as a DataFrame."""
    return spark.createDataFrame(table).withColumn("n", col("n").cast("timestamp_ntz"))


class Expressions:
    """A generator of expressions of roughly a given type, deterministic by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def of(self, kind: str, depth: int) -> str:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return self.leaf(kind)
        if rng.random() < 0.2:
            return self.chosen(kind, depth - 1)
        if kind in WHOLE:
            return self.whole(kind, depth - 1)
        if kind in ("float", "double", "decimal", "wide"):
            return self.number(kind, depth - 1)
        return {
            "string": self.string,
            "boolean": self.condition,
            "date": self.day,
            "timestamp": self.moment,
            "ntz": self.moment,
            "binary": self.bytes,
        }[kind](kind, depth - 1)

    def leaf(self, kind: str) -> str:
        rng = self.rng
        if rng.random() < 0.65:
            return rng.choice(["s", "t"]) if kind == "string" else COLUMNS[kind]
        literals = {
            "byte": ["1Y", "-2Y"], "short": ["3S", "0S"], "int": ["1", "0", "-1", "7", "100"],
            "long": ["3L", "3000000000", "-1L"], "float": ["1.5F", "CAST('NaN' AS float)"],
            "double": ["1e0", "2.5D", "-0.0D", "1e-3"], "decimal": ["1.5", "0.25", "3.00", "-7.1"],
            "wide": ["12345678901234567890.5", "0.0000000001"], "string": ["'abc'", "''", "'é'", "'a_c'", "'12'"],
            "binary": ["X'00'", "X'6162'"], "boolean": ["TRUE", "FALSE"],
            "date": ["DATE '2024-02-29'", "DATE '1582-10-10'"],
            "timestamp": ["TIMESTAMP '2024-02-29 12:30:00.5'", "TIMESTAMP '1969-12-31 23:00:00-01:30'"],
            "ntz": ["TIMESTAMP_NTZ '2024-02-29 12:30:00'"],
        }[kind]  # fmt: skip
        if rng.random() < 0.08:
            return f"CAST(NULL AS {SQL.get(kind, kind)})"
        return rng.choice(literals)

    def chosen(self, kind: str, depth: int) -> str:
        def of() -> str:
            return self.of(kind, depth)

        match self.rng.randrange(7):
            case 0:
                return f"CASE WHEN {self.of('boolean', depth)} THEN {of()} ELSE {of()} END"
            case 1:
                return f"coalesce({of()}, {of()})"
            case 2:
                return f"if({self.of('boolean', depth)}, {of()}, {of()})"
            case 3:
                return f"nullif({of()}, {of()})"
            case 4:
                return f"CASE {of()} WHEN {of()} THEN {of()} END"
            case 5:
                return f"{self.rng.choice(['greatest', 'least'])}({of()}, {of()}, {of()})"
            case _:
                return f"nvl2({of()}, {of()}, {of()})"

    def whole(self, kind: str, depth: int) -> str:
        rng = self.rng
        match rng.randrange(10):
            case 0 | 1 | 2:
                return f"({self.of(kind, depth)} {rng.choice('+-*')} {self.of(rng.choice(WHOLE), depth)})"
            case 3:
                return f"({self.of(kind, depth)} {rng.choice(['%', 'div'])} {self.of(kind, depth)})"
            case 4:
                name = rng.choice(["abs", "-", "sign", "round", "bround"])
                return f"{name}({self.of(kind, depth)})"
            case 5:
                name = rng.choice(["length", "octet_length", "ascii", "hash", "xxhash64", "crc32"])
                return f"{name}({self.of('string', depth)})"
            case 6:
                parts = ["year", "month", "day", "quarter", "dayofweek", "weekday", "dayofyear", "weekofyear"]
                return f"{rng.choice(parts)}({self.of(rng.choice(['date', 'timestamp', 'ntz']), depth)})"
            case 7:
                name = rng.choice(["hour", "minute", "second"])
                return f"{name}({self.of(rng.choice(['timestamp', 'ntz']), depth)})"
            case 8:
                source = rng.choice([*NUMBERS, "string", "boolean", "timestamp"])
                cast = rng.choice(["CAST", "TRY_CAST"])
                return f"{cast}({self.of(source, depth)} AS {SQL.get(kind, kind)})"
            case _:
                return rng.choice(
                    [
                        f"datediff({self.of('date', depth)}, {self.of('date', depth)})",
                        f"instr({self.of('string', depth)}, {self.of('string', depth)})",
                        f"pmod({self.of(kind, depth)}, {self.of(kind, depth)})",
                        f"{rng.choice(['floor', 'ceil'])}({self.of(rng.choice(['double', 'decimal', 'wide']), depth)})",
                        f"hash({self.of(rng.choice(list(COLUMNS)), depth)}, {COLUMNS[rng.choice(list(COLUMNS))]})",
                        f"xxhash64({self.of(rng.choice(list(COLUMNS)), depth)})",
                    ]
                )

    def number(self, kind: str, depth: int) -> str:
        rng = self.rng
        match rng.randrange(7):
            case 0 | 1 | 2:
                return f"({self.of(kind, depth)} {rng.choice('+-*/%')} {self.of(rng.choice(NUMBERS), depth)})"
            case 3:
                return f"{rng.choice(['abs', '-'])}({self.of(kind, depth)})"
            case 4:
                places = rng.choice(["", ", 1", ", 0", ", -1", ", 3"])
                return f"{rng.choice(['round', 'bround'])}({self.of(kind, depth)}{places})"
            case 5:
                source = rng.choice([*NUMBERS, "string", "boolean", "timestamp"])
                cast = rng.choice(["CAST", "CAST", "TRY_CAST"])
                return f"{cast}({self.of(source, depth)} AS {SQL.get(kind, kind)})"
            case _:
                name = rng.choice(["sqrt", "exp", "ln", "log10", "power"])
                more = f", {rng.choice(['2', '0.5', '-1'])}" if name == "power" else ""
                made = f"{name}({self.of(kind, depth)}{more})"
                return made if kind == "double" else f"CAST({made} AS {SQL.get(kind, kind)})"

    def string(self, _: str, depth: int) -> str:
        rng = self.rng

        def text() -> str:
            return self.of("string", depth)

        def near() -> str:
            return rng.choice(["0", "1", "2", "-1", "3", "-2", self.of("byte", 0)])

        return rng.choice(
            [
                lambda: f"({text()} || {text()})",
                lambda: f"concat({text()}, {self.of(rng.choice(['int', 'date', 'decimal', 'boolean']), depth)})",
                lambda: f"{rng.choice(['upper', 'lower', 'initcap', 'reverse', 'trim', 'ltrim', 'rtrim'])}({text()})",
                lambda: f"substring({text()}, {near()}, {near()})",
                lambda: f"{rng.choice(['left', 'right', 'repeat'])}({text()}, {near()})",
                lambda: f"{rng.choice(['lpad', 'rpad'])}({text()}, {near()}, {text()})",
                lambda: f"replace({text()}, {text()}, {text()})",
                lambda: f"concat_ws({text()}, {text()}, {text()})",
                lambda: f"split_part({text()}, 'X', {rng.choice(['1', '-1', '2'])})",
                lambda: f"CAST({self.of(rng.choice(list(COLUMNS)), depth)} AS string)",
                lambda: f"date_format({self.of('timestamp', depth)}, 'yyyy-MM-dd EEE HH:mm:ss.SSS a')",
                lambda: f"md5({self.of('binary', depth)})",
                lambda: f"translate({text()}, 'abc', 'xy')",
                lambda: f"btrim({text()}, {text()})",
            ]
        )()

    def condition(self, _: str, depth: int) -> str:
        rng = self.rng

        def truth() -> str:
            return self.of("boolean", depth)

        kind = rng.choice([kind for kind in COLUMNS if kind != "boolean"])

        def value() -> str:
            return self.of(rng.choice(NUMBERS) if kind in NUMBERS else kind, depth)

        match rng.randrange(9):
            case 0 | 1 | 2:
                return f"({value()} {rng.choice(['=', '<>', '<', '<=', '>', '>=', '<=>', '=='])} {value()})"
            case 3:
                return f"({truth()} {rng.choice(['AND', 'OR'])} {truth()})"
            case 4:
                return f"(NOT {truth()})"
            case 5:
                return f"({value()} {rng.choice(['IN', 'NOT IN'])} ({value()}, {value()}, NULL))"
            case 6:
                return f"({value()} BETWEEN {value()} AND {value()})"
            case 7:
                test = rng.choice(["IS NULL", "IS NOT NULL", "IS DISTINCT FROM " + self.leaf(kind)])
                return f"({self.of(kind, depth)} {test})"
            case _:
                text = self.of("string", depth)
                return rng.choice(
                    [
                        f"({text} LIKE '%b%')",
                        f"({text} ILIKE 'A_c')",
                        f"({text} RLIKE '^[a-c]+.?$')",
                        f"({truth()} IS {rng.choice(['', 'NOT '])}{rng.choice(['TRUE', 'FALSE'])})",
                        f"{rng.choice(['startswith', 'endswith', 'contains'])}({text}, {self.of('string', depth)})",
                        f"isnan({self.of('double', depth)})",
                        f"CAST({self.of(rng.choice([*NUMBERS, 'string']), depth)} AS boolean)",
                    ]
                )

    def day(self, _: str, depth: int) -> str:
        rng = self.rng
        days = self.of("date", depth)
        number = rng.choice(["1", "-40", self.of("byte", depth)])
        return rng.choice(
            [
                f"date_add({days}, CAST({number} AS int))",
                f"({days} + 1)",
                f"date_sub({days}, 3)",
                f"add_months({days}, CAST({number} AS int))",
                f"last_day({days})",
                f"trunc({days}, {rng.choice(['YEAR', 'MM', 'WEEK', 'QUARTER', 'X'])!r})",
                f"CAST({self.of(rng.choice(['timestamp', 'ntz']), depth)} AS date)",
                f"TRY_CAST({self.of('string', depth)} AS date)",
                f"make_date(2024, {self.of('byte', 0)}, 1)",
                "to_date(date_format(e, 'dd/MM/yyyy'), 'dd/MM/yyyy')",
            ]
        )

    def moment(self, kind: str, depth: int) -> str:
        rng = self.rng
        other = "ntz" if kind == "timestamp" else "timestamp"
        choices = [
            f"CAST({self.of('date', depth)} AS {SQL.get(kind, kind)})",
            f"CAST({self.of(other, depth)} AS {SQL.get(kind, kind)})",
            f"TRY_CAST({self.of('string', depth)} AS {SQL.get(kind, kind)})",
        ]
        if kind == "timestamp":
            unit = rng.choice(["YEAR", "quarter", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"])
            choices.append(f"date_trunc('{unit}', {self.of(kind, depth)})")
            choices.append(f"CAST({self.of(rng.choice(['int', 'decimal', 'double']), depth)} AS timestamp)")
        return rng.choice(choices)

    def bytes(self, _: str, depth: int) -> str:
        return self.rng.choice(
            [
                f"CAST({self.of('string', depth)} AS binary)",
                f"({self.of('binary', depth)} || {self.of('binary', depth)})",
                f"substring({self.of('binary', depth)}, 2)",
            ]
        )


def values(array: pa.ChunkedArray) -> list[str]:
    """Values as strings, in which NaN equals NaN and the two zeros differ."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return [repr(value) for value in array.to_pylist()]


def ours(table: pa.Table, text: str) -> tuple[str, list[str]] | Exception:
    try:
        column = pa.table(_deltic.evaluate(table, text)).column("value")
    except deltic.DelticError as error:
        return error
    return str(column.type), values(column)


def by_spark(frame: DataFrame, texts: list[str]) -> list[tuple[str, list[str]] | Exception]:
    """Spark's results of several expressions, in one query if none is an error."""
    try:
        table = frame.selectExpr(*(f"{text} AS c{at}" for at, text in enumerate(texts))).toArrow()
        return [(str(column.type), values(column)) for column in table.columns]
    except (PySparkException, Py4JJavaError) as error:
        if len(texts) == 1:
            return [error]
        half = len(texts) // 2
        return by_spark(frame, texts[:half]) + by_spark(frame, texts[half:])


def divides_null_by_zero(text: str, mine: tuple[str, list[str]] | Exception, spark: Any) -> bool:
    """Whether one has an error and the other NULL: for NULL divided by zero Spark's result depends on its optimizer."""
    if not re.search(r"[/%]|\bdiv\b|pmod\(", text) or isinstance(mine, Exception) == isinstance(spark, Exception):
        return False
    if isinstance(mine, Exception):
        row = re.match(r"row (\d+): division by zero", str(mine))
        return row is not None and spark[1][int(row[1])] == "None"
    return bool(re.search("DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|ARITHMETIC_OVERFLOW", str(spark))) and "None" in mine[1]


EXCLUDED = [
    "ConstantFolding", "NullPropagation", "BooleanSimplification", "SimplifyConditionals", "OptimizeIn",
    "SimplifyBinaryComparison", "ReplaceNullWithFalseInPredicate", "ReorderAssociativeOperator", "SimplifyCasts",
    "UnwrapCastInBinaryComparison", "LikeSimplification", "PushFoldableIntoBranches",
    "SimplifyCaseConversionExpressions", "RemoveDispatchExpressions", "NullDownPropagation",
]  # fmt: skip


@pytest.mark.parametrize("mild", [True, False], ids=["mild", "extreme"])
def test_random_expressions(utc: SparkSession, mild: bool) -> None:
    """Values and row errors must agree. deltic may accept types that Spark refuses."""
    rules = ",".join("org.apache.spark.sql.catalyst.optimizer." + rule for rule in EXCLUDED)
    utc.conf.set("spark.sql.optimizer.excludedRules", rules)
    table = rows(mild)
    frame = framed(utc, table).coalesce(1)
    source = Expressions(SEED + (0 if mild else 1))
    until = time.monotonic() + SECONDS / 2
    wrong, compared, failed = [], 0, 0
    try:
        for _ in range(ROUNDS):
            if time.monotonic() > until:
                break
            texts = [source.of(source.rng.choice(list(COLUMNS)), 3) for _ in range(40)]
            answers = [(text, ours(table, text)) for text in texts]
            good = [(text, answer) for text, answer in answers if not isinstance(answer, Exception)]
            bad = [(text, answer) for text, answer in answers if isinstance(answer, Exception)][:4]
            theirs_good = by_spark(frame, [text for text, _ in good])
            theirs_bad = [answer for text, _ in bad for answer in by_spark(frame, [text])]
            for (text, mine), spark in zip(good + bad, theirs_good + theirs_bad, strict=True):
                if divides_null_by_zero(text, mine, spark):
                    continue
                if isinstance(spark, Exception):
                    analysis = "AnalysisException" in type(spark).__name__
                    if not isinstance(mine, Exception) and not analysis:
                        wrong.append(f"{text}\n  Spark: {str(spark).splitlines()[0][:200]}\n  deltic: {mine}")
                    failed += not analysis
                elif isinstance(mine, Exception):
                    wrong.append(f"{text}\n  Spark: {spark}\n  deltic: {mine}")
                elif spark != mine:
                    at = [row for row, (a, b) in enumerate(zip(spark[1], mine[1], strict=True)) if a != b][:3]
                    pairs = [(row, spark[1][row], mine[1][row]) for row in at]
                    wrong.append(f"{text}\n  Spark: {spark[0]}\n  deltic: {mine[0]}\n  rows: {pairs}")
                else:
                    compared += 1
            if len(wrong) > 30:
                break
    finally:
        utc.conf.unset("spark.sql.optimizer.excludedRules")
    print(compared, "agree,", failed, "are errors in both")
    assert not wrong, "\n".join(wrong)
    assert compared > 20


def test_filters_on_expressions(utc: SparkSession, uri: str) -> None:
    """A scan with a filter returns the rows of Spark's WHERE."""
    table = rows(mild=True).append_column("id", pa.array(range(40), pa.int64()))
    deltic.write(uri, table)
    framed(utc, table).createOrReplaceTempView("filtered")
    written = deltic.Table(uri)
    source = Expressions(SEED + 4)
    filters = ["year(z) = 2024 AND id % 10 = 3", "CAST(n AS DATE) = DATE '1582-10-15'", "i = h OR l < m"]
    filters += ["year(e) BETWEEN 1582 AND 1969", "s = 'a' || 'bc'", "id / 4 > 5 AND NOT isnan(d)"]
    filters += [text for text in (source.of("boolean", 2) for _ in range(60)) if "CAST(NULL" not in text]
    compared, refused = 0, []
    for text in filters:
        try:
            wanted = [row[0] for row in utc.sql(f"SELECT id FROM filtered WHERE {text} ORDER BY id").collect()]
        except PySparkException:
            continue
        try:
            found = sorted(pa.table(written.scan(["id"], filter=text).to_arrow()).column("id").to_pylist())
        except deltic.DelticError as error:
            refused.append((text, str(error)))
            continue
        assert found == wanted, text
        compared += 1
    # In a filter a literal must have the type of its column.
    assert not [(text, error) for text, error in refused if "cannot be compared with" not in error]
    assert compared > 20
