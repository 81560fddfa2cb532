"""Which SQL may depend on a session's time zone: the pure functions that `deltic.spark` decides it by."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from conftest import ROOT

pytest.importorskip("pyspark")

from deltic import InvalidInputError
from deltic.spark.options import is_utc
from deltic.spark.time_zone import (
    _CHOOSING_CALLS,
    _DEPENDENT_CALLS,
    dependence,
    refuse_conversion,
    refuse_dependent,
)

INSTANT = pa.timestamp("us", "UTC")
TABLE = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("Ts", INSTANT),
        ("odd ts", INSTANT),
        ("timestamp", pa.int64()),
        ("place", pa.struct([("at", INSTANT), ("city", pa.string())])),
        ("log", pa.list_(INSTANT)),
        ("by", pa.map_(pa.string(), INSTANT)),
    ]
)
SOURCE = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("seen", INSTANT), ("ts", INSTANT), ("text", pa.string())]
)
Z = "'2024-01-01T00:00:00Z'"
T = "TIMESTAMP '2024-01-01 00:00:00.5-08:00'"

FREE = [
    "id = 1 AND name LIKE 'a%' OR NOT (id IN (1, 2))",
    "name = 'ts' AND name = 'it''s ts' AND name <> '\\'",
    "id BETWEEN 1 AND 2 AND name = '2024-01-01 00:00:00'",
    "CASE WHEN id = 1 THEN day ELSE DATE '2024-01-01' END = day",
    "year(day) = 2024 AND day > '2024-01-01' AND day = date_add(CAST(name AS DATE), 1)",
    "local > '2024-01-01 00:00:00' AND CAST(local AS DATE) = day AND local < TIMESTAMP_NTZ '2024-01-01 00:00:00'",
    "EXTRACT(YEAR FROM day) = 2024",
    "timestamp > 5 AND t.timestamp = 6 AND `timestamp` = 7",
    "place.city = 'x' AND t.place.city = 'y' AND PLACE.CITY IS NULL",
    f"ts > {Z}",
    f"TS = {T} AND id = 1",
    f"{Z} <= t.Ts AND id BETWEEN 1 AND 2 AND ts < {T}",
    f'`odd ts` <=> {T} OR "odd ts" != {Z}',
    f"ts BETWEEN {Z} AND {T} AND ts NOT BETWEEN {T} AND {Z}",
    f"ts IN ({Z}, {T}, NULL) AND NOT ts NOT IN ({Z})",
    f"ts IS NULL OR ts IS NOT NULL OR ts IS NOT DISTINCT FROM {T} OR isnull(ts) OR place IS NOT NULL OR log IS NULL",
    f"place.at > {Z} AND t.place.at > ts",
    f"if(ts > {Z}, id, 2) = 1 AND CASE WHEN ts > {Z} THEN ts < {T} ELSE ts = {T} END",
    f"(ts) > (({T})) AND (((ts > {Z}) AND (id = 1)))",
    f"coalesce(ts, {T}) > {Z} AND greatest(ts, `odd ts`, NULL) = coalesce(ts, least(ts, {T}))",
    "ts < current_timestamp() AND ts > now()",
]
DEPENDENT = {
    "ts > '2024-01-01 00:00:00'": "ts",
    "ts > '2024-01-01'": "ts",
    "id = 1 AND ts = name": "ts",
    "T.`tS` = 'x'": "T.`tS`",
    '"TS" = 1': '"TS"',
    "`odd ts` = name": "`odd ts`",
    "ts = day": "ts",
    "ts = local": "ts",
    "ts > TIMESTAMP '2024-01-01 00:00:00'": "ts",
    "day = TIMESTAMP '2024-01-01 00:00:00Z'": "TIMESTAMP '2024-01-01 00:00:00Z'",
    "name = timestamp '2024-01-01 00:00:00Z'": "timestamp '2024-01-01 00:00:00Z'",
    "local < TIMESTAMP '2024-01-01 00:00:00+00:00'": "TIMESTAMP '2024-01-01 00:00:00+00:00'",
    "day > TIMESTAMP_LTZ '2024-01-01 00:00:00'": "TIMESTAMP_LTZ '2024-01-01 00:00:00'",
    f"ts BETWEEN {Z} AND '2024-01-01 00:00:00'": "ts",
    f"ts IN ({Z}, '2024-01-01')": "ts",
    f"day BETWEEN ts AND {T}": "ts",
    f"local BETWEEN local AND ts > {Z} = TRUE": "ts",
    f"name || ts = {Z}": "ts",
    f"ts = {Z} || name": "ts",
    f"ts = {Z}::date": "ts",
    f"ts = DATE {Z}": "ts",
    f"coalesce({Z}, ts) = {Z}": "ts",
    f"coalesce(ts, day) = {T}": "ts",
    "CAST(ts AS DATE) = day": "ts",
    "ts::date = day": "ts",
    "string(ts) = 'x'": "ts",
    "concat(name, ts) = 'x'": "ts",
    "year(ts) = 2024": "ts",
    "hour(name) = 1": "hour",
    "EXTRACT(HOUR FROM name) = 1": "EXTRACT",
    "CAST(name AS TIMESTAMP) = day": "AS TIMESTAMP",
    "TRY_CAST(name AS timestamp_ltz) IS NULL": "AS timestamp_ltz",
    "name::Timestamp IS NULL": "::",
    "timestamp(name) IS NULL": "timestamp",
    "unix_timestamp(name) = 1": "unix_timestamp",
    "From_UnixTime(id) = name": "From_UnixTime",
    "date_format(day, 'yyyy') = '2024'": "date_format",
    "day = current_date()": "current_date",
    "date_trunc('hour', local) = local": "date_trunc",
    "day = now()": "now()",
    "place.at = name": "place.at",
    "t.place.AT = name": "t.place.AT",
    "array_contains(log, '2024-01-01')": "log",
    "element_at(by, 'x') = '2024-01-01'": "by",
    "hash(place) = 1": "place",
    "CASE ts WHEN '2024-01-01' THEN TRUE END": "ts",
    "'never closed ts > 1": "ts",
}


@pytest.mark.parametrize("sql", FREE)
def test_sql_that_does_not_depend_on_the_zone(sql: str) -> None:
    assert dependence(sql, [TABLE]) is None


@pytest.mark.parametrize("sql", DEPENDENT)
def test_sql_that_may_depend_on_the_zone(sql: str) -> None:
    found = dependence(sql, [TABLE])
    assert found is not None
    assert DEPENDENT[sql] in found


def test_a_merge_has_the_columns_of_both_sides() -> None:
    both = [TABLE, SOURCE]
    assert dependence("s.id = t.id AND s.day = t.day AND s.text = t.name", both) is None
    assert dependence("s.id = t.id AND s.ts > t.ts AND seen <> t.`odd ts`", both) is None
    for sql in ("s.day = t.ts", "s.text = t.ts", "s.seen = t.day", "t.local = s.ts", "seen = text"):
        assert dependence(sql, both) is not None, sql
    # A name that is a timestamp on one side only.
    other = pa.schema([("ts", pa.string())])
    assert dependence(f"s.ts = {Z}", [TABLE, other]) is not None
    # Fields of a struct may be called like columns.
    named = [pa.schema([("at", pa.string())]), TABLE]
    assert dependence("at = 'x'", named) is None
    assert dependence("place.at = 'x'", named) == "`place.at`"


@pytest.mark.parametrize("sql", ["s.seen", "SEEN", "NULL", "(seen)", T, Z, "now()", f"coalesce(seen, ts, {T})"])
def test_values_of_timestamps(sql: str) -> None:
    assert dependence(sql, [TABLE, SOURCE], INSTANT) is None


@pytest.mark.parametrize(
    "sql",
    ["s.day", "text", "'2024-01-01 00:00:00'", "DATE '2024-01-01'", "local", f"if(TRUE, {Z}, text)", "", "1", "place"],
)
def test_values_that_become_timestamps_by_the_zone(sql: str) -> None:
    assert dependence(sql, [TABLE, SOURCE], INSTANT) is not None


def test_values_of_other_columns() -> None:
    both = [TABLE, SOURCE]
    assert dependence("upper(text)", both, pa.string()) is None
    assert dependence(f"if(seen > {Z}, text, 'x')", both, pa.string()) is None
    assert dependence("day", both, pa.date32()) is None
    for kind in (pa.string(), pa.date32(), pa.timestamp("us")):
        assert dependence("s.seen", both, kind) == "`s.seen`"
    place = TABLE.field("place").type
    assert dependence("t.place", both, place) is None
    assert dependence("NULL", both, place) is None
    assert dependence("id", both, place) is not None


@pytest.mark.parametrize(
    "zone", ["UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "+00:00", "-00:00", "UTC+0", "GMT+00:00"]
)
def test_names_of_utc(zone: str) -> None:
    assert is_utc(zone)
    refuse_dependent("ts > '2024-01-01'", "where", zone, [TABLE])


@pytest.mark.parametrize(
    "zone", ["America/Los_Angeles", "Europe/London", "+01:00", "GMT-1", "Etc/GMT+1", "EST", "unknown", ""]
)
def test_other_zones(zone: str) -> None:
    assert not is_utc(zone)
    refuse_dependent(None, "where", zone, [TABLE])
    refuse_dependent("id = 1", "where", zone, [TABLE])
    message = re.escape(
        f"where may depend on the time zone of the session: `ts`. deltic evaluates SQL in UTC, and the session's time "
        f"zone is {zone!r}: compare timestamps only with each other and with literals that have an offset, such as "
        "TIMESTAMP '2024-01-01 00:00:00+00:00', or set spark.sql.session.timeZone to UTC"
    )
    with pytest.raises(InvalidInputError, match=message):
        refuse_dependent("ts > '2024-01-01'", "where", zone, [TABLE])


def test_an_unknown_zone() -> None:
    with pytest.raises(InvalidInputError, match=r"does not tell .* or call deltic\.spark\.install\(spark\)"):
        refuse_dependent("ts > '2024-01-01'", "option 'replaceWhere'", None, [TABLE])


@pytest.mark.parametrize("column", ["ts", "t.ts", "`odd ts`", "odd ts", "place.at", "t.place.`AT`"])
def test_columns_that_are_set(column: str) -> None:
    refuse_dependent("seen", "v", "EST", [TABLE, SOURCE], column)
    with pytest.raises(InvalidInputError, match="converted to the type timestamp"):
        refuse_dependent("day", "v", "EST", [TABLE, SOURCE], column)


def test_values_that_are_converted() -> None:
    for given, column in ((INSTANT, "ts"), (pa.null(), "ts"), (pa.string(), "name"), (pa.date32(), "local")):
        refuse_conversion(given, column, TABLE, "v", "EST")
    nested = pa.struct([("city", pa.string()), ("at", INSTANT)])
    for given, column in ((nested, "place"), (pa.list_(INSTANT), "log"), (INSTANT, "no such column")):
        refuse_conversion(given, column, TABLE, "v", "EST")
    other = pa.struct([("at", pa.timestamp("us"))])
    for given, column in ((pa.date32(), "ts"), (INSTANT, "name"), (other, "place"), (pa.list_(pa.string()), "log")):
        refuse_conversion(given, column, TABLE, "v", "UTC")
        with pytest.raises(InvalidInputError, match=r"v has the type .* depends on the time zone"):
            refuse_conversion(given, column, TABLE, "v", "EST")


def test_every_function_of_time_is_judged() -> None:
    """A function of dates and times is added to one of the sets of the module, or here: those of dates alone."""
    of_dates = {
        "year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear", "week",
        "dayname", "monthname", "date_add", "dateadd", "date_sub", "datediff", "date_diff", "add_months", "last_day",
        "next_day", "make_date", "trunc", "unix_date", "date_from_unix_date",
    }  # fmt: skip
    text = (ROOT / "docs" / "expressions.md").read_text()
    lines = re.search(r"^- dates: (.*?)^- hashes", text, re.MULTILINE | re.DOTALL)
    now = re.search(r"^- the current time: .*$", text, re.MULTILINE)
    assert lines is not None
    assert now is not None
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", lines[1] + now[0]))))
    assert named <= of_dates | _DEPENDENT_CALLS
    assert not of_dates & _DEPENDENT_CALLS
    assert not _CHOOSING_CALLS & _DEPENDENT_CALLS
