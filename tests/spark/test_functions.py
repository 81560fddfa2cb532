"""Functions of strings, codes, regular expressions, numbers, dates, arrays and maps have the same results as in Spark.

Both evaluate each function on random rows with NULL, NaN, both zeros, empty strings, multi-byte characters and extreme
dates. Functions that DuckDB evaluates are included if sqlglot is installed.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import struct
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from test_expressions import by_spark, framed, ours, utc  # noqa: F401

from deltic import duckdb_functions

SEED = int(os.environ.get("DELTIC_EXPRESSIONS_SEED", "7"))
ROWS = 400


def table() -> pa.Table:
    rng = random.Random(SEED)

    def some(choices: list[Any], make: Any) -> list[Any]:
        return [
            None if rng.random() < 0.1 else rng.choice(choices) if rng.random() < 0.4 else make() for _ in range(ROWS)
        ]

    def text(letters: str = "abcXYZ ,.;-_09é€ß\U0001f600\n", most: int = 12) -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randrange(most)))

    def real() -> float:
        if rng.random() < 0.5:
            return rng.uniform(-3, 3)
        return struct.unpack("<d", rng.randbytes(8))[0]

    def listed(make: Any) -> Any:
        return lambda: [None if rng.random() < 0.2 else make() for _ in range(rng.randrange(5))]

    def mapped(key: Any, make: Any) -> Any:
        return lambda: list({key(): None if rng.random() < 0.2 else make() for _ in range(rng.randrange(4))}.items())

    def small() -> int:
        return rng.randrange(-3, 4)

    floats = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e-10, 1e300, math.nan, math.inf, -math.inf, 709.9, 2.0**53 + 1]
    texts = ["", "a", "Robert", "Rupert", "Tymczak", "Pfister", "ash-craft", "kitten", "sitting", "2024-02-29 12:30:00"]
    texts += [
        "1969-12-31 23:59:59",
        "a,b,,c",
        "SGVsbG8=",
        "SGVsbG8",
        "abc=",
        "aaaa",
        "a.b.c",
        "0aF",
        "x" * 130,
        "\u0130",
    ]
    longs = [0, 1, -1, 255, 256, -256, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1709209800]
    days = [
        date(1, 1, 1),
        date(9999, 12, 31),
        date(2024, 2, 29),
        date(1970, 1, 1),
        date(1969, 12, 31),
        date(2023, 1, 31),
    ]
    days += [date(1582, 10, 4), date(1582, 10, 15), date(2024, 3, 31)]
    moments = [datetime(d.year, d.month, d.day, 23, 59, 58, 7, timezone.utc) for d in days]
    moments += [datetime(d.year, d.month, d.day, tzinfo=timezone.utc) for d in days]

    def moment() -> datetime:
        return datetime(2024, 1, 31, tzinfo=timezone.utc) + timedelta(seconds=rng.randrange(-(10**9), 10**9))

    columns = {
        "i": pa.array(some([0, 1, -1, 2, 5, 20, 21, -2], small), pa.int32()),
        "l": pa.array(some(longs, lambda: rng.randrange(-(10**10), 10**10)), pa.int64()),
        "d": pa.array(some(floats, real), pa.float64()),
        "g": pa.array(some(floats, real), pa.float64()),
        "f": pa.array(some(floats[:7], lambda: rng.uniform(-9, 9)), pa.float32()),
        "s": pa.array(some(texts, text), pa.string()),
        "t": pa.array(some(["", "a", ",", "b", "aa", ".", "é"], lambda: text(most=4)), pa.string()),
        "x": pa.array(some([b"", b"a", bytes(range(256))], lambda: rng.randbytes(rng.randrange(200))), pa.binary()),
        "y": pa.array(some([True], lambda: False), pa.bool_()),
        "e": pa.array(some(days, lambda: moment().date()), pa.date32()),
        "z": pa.array(some(moments, moment), pa.timestamp("us", "UTC")),
        "n": pa.array([None] * ROWS, pa.timestamp("us")),
        "ai": pa.array(some([[], [None], [1, 1, 2]], listed(small)), pa.list_(pa.int32())),
        "al": pa.array(some([[]], listed(lambda: rng.choice(longs))), pa.list_(pa.int64())),
        "ad": pa.array(some([[], [math.nan, 0.0], [-0.0]], listed(lambda: rng.choice(floats))), pa.list_(pa.float64())),
        "at": pa.array(some([[], [""], ["é", "e"]], listed(lambda: text(most=4))), pa.list_(pa.string())),
        "ay": pa.array(some([[]], listed(lambda: rng.random() < 0.5)), pa.list_(pa.bool_())),
        "ae": pa.array(some([[]], listed(lambda: rng.choice(days))), pa.list_(pa.date32())),
        "mt": pa.array(some([[], [("", 1)]], mapped(lambda: text(most=3), small)), pa.map_(pa.string(), pa.int32())),
        "mi": pa.array(some([[]], mapped(small, lambda: text(most=4))), pa.map_(pa.int32(), pa.string())),
    }
    return pa.table(columns)


NATIVE = [
    # Codes
    "hex(l)", "hex(i)", "hex(s)", "hex(x)", "unhex(s)", "unhex(hex(x))", "unhex(hex(l))", "bin(l)", "bin(i)",
    "sha1(x)", "sha(s)",
    "sha2(x, 256)", "sha2(x, 0)", "sha2(x, 224)", "sha2(x, 384)", "sha2(s, 512)", "sha2(x, i)", "md5(x)", "crc32(x)",
    "char(l)", "chr(i)", "levenshtein(s, t)", "levenshtein(s, s)", "levenshtein('kitten', s)", "soundex(s)",
    "soundex(t)",
    # Strings
    "bit_length(s)", "bit_length(x)", "space(i)", "substring_index(s, t, i)", "substring_index(s, 'a', i)",
    "substring_index(s, 'aa', -2)", "substring_index(s, '.', 2)", "find_in_set(t, s)", "find_in_set('b', 'a,b,c')",
    # Regular expressions
    "regexp_extract(s, '([a-z]+)', 1)", "regexp_extract(s, '([a-z])([a-zA-Z])?')",
    "regexp_extract(s, '([a-z])([0-9])?', 2)",
    "regexp_extract(s, 'b|ab', 0)", "regexp_extract(s, '(?:a|b)(.)', 1)", "regexp_extract(s, 'a', 1)",
    "regexp_extract(s, '(a)', -1)", "regexp_extract(rtrim('\n', s), '[a-z]$', 0)", "regexp_substr(s, '[0-9]+')",
    "regexp_substr(s, 'a*')", "regexp_count(s, 'a')", "regexp_count(t, '[^a]')", "regexp_count('aba', 'x*')",
    "regexp_count('aab', 'a*')", "regexp_replace(s, '[a-c]+', '<$0>')", "regexp_replace(s, '([a-z])([A-Z])', '$2$1')",
    "regexp_replace('aab', 'a*', 'X')", "regexp_replace('abc', '', '-')", "regexp_replace(s, '(a)', '$12')",
    "regexp_replace(s, 'a', '$1')", "regexp_replace(s, '\\\\.', '\\\\$')", "regexp_replace(s, '.', t)",
    "regexp_replace(s, '^a', t)", "regexp_replace(s, '[\\\\s,]+', ' ')", "regexp_replace('a', 'a', '$')",
    "regexp_like(s, '^[a-c]+')", "regexp(s, t)", "rlike(s, 'a.c')", "regexp_like(s, 'b$')",
    # Numbers
    "log(d)", "log(d, g)", "log(2, l)", "log1p(d)", "expm1(d)", "asin(d)", "acos(d)", "atan(d)", "atan2(d, g)",
    "degrees(d)",
    "radians(d)", "rint(d)", "rint(f)", "factorial(i)", "e()", "pi()", "nanvl(d, g)", "nanvl(f, f)", "nanvl(d, i)",
    "greatest(d, g)", "least(d, g, f)", "sqrt(d)", "exp(d)", "power(d, g)", "ln(d)", "log10(d)", "log2(d)", "cbrt(d)",
    # Dates
    "next_day(e, 'MO')", "next_day(e, 'sunday')", "next_day(e, 'Xyz')",
    "months_between(z, TIMESTAMP '2024-02-29 10:00:00')",
    "months_between(e, z)", "months_between(z, e)", "dayname(e)", "monthname(z)", "timestamp_seconds(i)",
    "timestamp_millis(l)", "timestamp_micros(l)", "timestamp_seconds(l)", "from_unixtime(i)",
    "from_unixtime(1709209800)",
    "from_unixtime(i * 100000000L)", "from_unixtime(i * 100000000L, 'yyyy/MM/dd HH')",
    "unix_timestamp(e)", "to_unix_timestamp('2024-02-29 12:30:00')", "unix_timestamp('29/02/2024', 'dd/MM/yyyy')",
    "unix_timestamp('x')", "unix_timestamp(date_format(z, 'yyyy-MM-dd HH:mm:ss'))",
    # Arrays and maps
    "size(ai)", "cardinality(at)", "size(mt)", "array_size(ad)", "array_contains(ai, i)", "array_contains(ai, 1)",
    "array_contains(al, i)", "array_contains(ad, d)", "array_contains(ad, CAST('NaN' AS double))",
    "array_contains(at, t)",
    "array_contains(ad, 0.0D)", "array_contains(ae, e)", "array_contains(ay, y)", "array_position(ai, i)",
    "array_position(at, t)", "array_position(ad, -0.0D)", "element_at(ai, 1)", "element_at(ai, 0)",
    "try_element_at(ai, i)",
    "try_element_at(at, -1)", "try_element_at(ad, 2)", "element_at(mt, t)", "element_at(mi, i)", "element_at(mt, '')",
    "map_contains_key(mt, t)", "map_contains_key(mi, 1)", "get(ai, i)", "get(at, 0)", "get(ae, 1)",
]  # fmt: skip

DUCKDB = [
    "array_max(ai)", "array_max(at)", "array_max(al)", "array_max(ae)", "array_min(ai)", "array_min(at)",
    "array_min(ay)",
    "sort_array(ai)", "sort_array(at)", "sort_array(al, false)", "sort_array(ae, false)", "sort_array(at, true)",
    "sort_array(ay)", "array_append(ai, i)", "array_append(at, t)", "array_append(ad, d)", "array_prepend(al, l)",
    "array_prepend(ae, e)", "array_compact(ai)", "array_compact(ad)", "array_compact(at)", "array_join(at, ',')",
    "array_join(at, '')", "array_join(at, '\\\\\\'')", "slice(ai, 1, 2)", "slice(ai, 2, 0)", "slice(ai, 1, 0)",
    "slice(at, -2, 1)", "slice(ad, -2, 9)", "slice(ae, -9, 3)", "slice(ae, 7, 1)", "slice(ai, -1, 1)",
    "slice(ai, -3, 0)",
    "map_keys(mt)", "map_keys(mi)", "map_values(mt)", "map_values(mi)", "array(i, i)", "array(s, t)", "array(d, g)",
    "array(e)", "split(s, ',')", "split(s, '[,;]+')", "split(s, '\\\\.')", "split(s, 'a')", "split(s, 'é')",
    "split(s, 'a+')", "size(split(s, ','))", "element_at(split(s, ','), 1)", "array_contains(map_keys(mt), t)",
    "array_join(sort_array(array_compact(at)), '-')", "CASE WHEN size(ai) > 0 THEN array_max(ai) ELSE i END",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table()


@pytest.fixture
def session(utc: SparkSession) -> SparkSession:  # noqa: F811
    return utc


def compare(session: SparkSession, rows: pa.Table, texts: list[str]) -> None:
    frame = framed(session, rows).coalesce(1)
    mine = [ours(rows, text) for text in texts]
    good = [text for text, answer in zip(texts, mine, strict=True) if not isinstance(answer, Exception)]
    theirs = dict(zip(good, by_spark(frame, good), strict=True))
    theirs.update({text: by_spark(frame, [text])[0] for text in texts if text not in theirs})
    wrong = []
    for text, answer in zip(texts, mine, strict=True):
        spark = theirs[text]
        if isinstance(answer, Exception) and isinstance(spark, Exception):
            continue
        if isinstance(answer, Exception) or isinstance(spark, Exception):
            wrong.append(f"{text}\n  Spark: {str(spark)[:200]}\n  deltic: {str(answer)[:200]}")
        elif plain(answer[0]) != plain(spark[0]) or not all(map(same, answer[1], spark[1])):
            at = [row for row, (a, b) in enumerate(zip(spark[1], answer[1], strict=True)) if not same(a, b)][:4]
            inputs = [rows.slice(row, 1).to_pylist()[0] for row in at[:1]]
            pairs = [(spark[1][row], answer[1][row]) for row in at]
            wrong.append(f"{text}\n  Spark: {spark[0]}\n  deltic: {answer[0]}\n  rows {at}: {pairs}\n  {inputs}")
    assert not wrong, "\n".join(wrong)


def same(mine: str, spark: str) -> bool:
    """Equality, except for the last digits of a double, in which JVMs differ for logarithms, roots and angles."""
    if mine == spark:
        return True
    try:
        return math.isclose(float(mine), float(spark), rel_tol=1e-15 * 4, abs_tol=0)
    except ValueError:
        return False


def plain(kind: str) -> str:
    """A type without the names and nullability of elements."""
    return kind.replace(" not null", "").replace("item:", "element:")


def test_functions_of_the_core(session: SparkSession, rows: pa.Table) -> None:
    compare(session, rows, NATIVE)


@pytest.mark.skipif(importlib.util.find_spec("sqlglot") is None, reason="sqlglot is not installed")
def test_functions_that_duckdb_evaluates(session: SparkSession, rows: pa.Table) -> None:
    compare(session, rows, DUCKDB)
    missing = [name for name in duckdb_functions.FUNCTIONS if not any(f"{name}(" in text for text in DUCKDB)]
    assert not missing
