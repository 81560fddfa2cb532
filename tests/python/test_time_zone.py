"""Which SQL may depend on a session's time zone: the pure functions that `deltic.spark` decides it by."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from conftest import ROOT

pytest.importorskip("pyspark")

from deltic import InvalidInputError
from deltic.spark.options import is_utc
from deltic.spark.sql.time_zone import (
    _TIME_WORDS,
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
        ("places", pa.list_(pa.struct([("at", INSTANT)]))),
        ("flag", pa.bool_()),
        ("money", pa.decimal128(10, 2)),
        ("code", pa.binary()),
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
    "timestamp > 5 AND t.timestamp = 6 AND `timestamp` = 7 AND id IS DISTINCT FROM timestamp",
    "CAST(timestamp AS STRING) = name || timestamp::string",
    "name = 'hour(ts)' AND `it's hour('` = 1",
    "place.city = 'x' AND t.place.city = 'y' AND PLACE.CITY IS NULL",
    f"ts > {Z}",
    f"TS = {T} AND id = 1 AND flag AND money > 1.5e0 AND code <> code",
    f"{Z} <= t.Ts AND id BETWEEN 1 AND 2 AND ts < {T}",
    f'`odd ts` <=> {T} OR "odd ts" != {Z}',
    f"ts BETWEEN {Z} AND {T} AND ts NOT BETWEEN {T} AND {Z}",
    f"ts IN ({Z}, {T}, NULL) AND NOT ts NOT IN ({Z})",
    f"ts IS NULL OR ts IS NOT NULL OR ts IS NOT DISTINCT FROM {T} OR ts IS DISTINCT FROM {Z}",
    f"place.at > {Z} AND t.place.at > ts",
    f"CASE WHEN ts > {Z} THEN ts < {T} ELSE ts = {T} END AND CASE ts WHEN {Z} THEN TRUE END",
    f"(ts) > (({T})) AND (((ts > {Z}) AND (id = 1)))",
    "ts < current_timestamp() AND ts > now()",
    f"{T} < now()",
]
DEPENDENT = {
    "ts > '2024-01-01 00:00:00'": "the string '2024-01-01 00:00:00'",
    "ts > '2024-01-01'": "the string '2024-01-01'",
    "ts > ' 2024-01-01T00:00:00Z'": "the string",
    "id = 1 AND ts = name": "`name` of the type string",
    "T.`tS` = 'x'": "the string 'x'",
    "`odd ts` = name": "`name`",
    '"TS" = name': "`name`",
    "ts = day": "`day` of the type date32",
    "ts = local": "`local` of the type timestamp[us]",
    "ts > TIMESTAMP '2024-01-01 00:00:00'": "the string",
    "day = TIMESTAMP '2024-01-01 00:00:00Z'": "`day`",
    "name = timestamp '2024-01-01 00:00:00Z'": "`name`",
    "local < TIMESTAMP '2024-01-01 00:00:00+00:00'": "`local`",
    "day > TIMESTAMP_LTZ '2024-01-01 00:00:00'": "the string",
    "DATE '2024-01-01' = TIMESTAMP '2024-01-01 00:00:00Z'": "`date`",
    f"ts BETWEEN {Z} AND '2024-01-01 00:00:00'": "the string '2024-01-01 00:00:00'",
    f"ts IN ({Z}, '2024-01-01')": "the string",
    f"day BETWEEN ts AND {T}": "`day`",
    f"name || ts = {Z}": "`||`",
    f"ts || {Z} = {Z}": "`||`",
    f"ts LIKE {Z}": "`like`",
    f"id || ts RLIKE {Z}": "`rlike`",
    f"ts = {Z}::date": "`date`",
    "ts::int = 1": "`int`",
    "ts::timestamp = ts": "`::`",
    "ts > TIMESTAMP_NTZ '2024-01-01 00:00:00'": "`timestamp_ntz`",
    f"coalesce({Z}, ts) = {Z}": "`coalesce`",
    "CAST(ts AS DATE) = day": "`cast`",
    "string(ts) = 'x'": "`string`",
    "concat(id, ts) = id": "`concat`",
    "year(ts) = 2024": "`year`",
    "EXTRACT(YEAR FROM ts) = 2024": "`extract`",
    "hour(name) = 1": "`hour`",
    "Hour (name) = 1": "`hour`",
    "EXTRACT(HOUR FROM name) = 1": "`extract`",
    "CAST(name AS TIMESTAMP) = day": "`cast`",
    "TRY_CAST(name AS timestamp_ltz) IS NULL": "`try_cast`",
    "CAST(timestamp AS timestamp) = day": "`cast`",
    "name::Timestamp IS NULL": "`::`",
    "timestamp(name) IS NULL": "`name`",
    "unix_timestamp(name) = 1": "`unix_timestamp`",
    "to_timestamp_ltz(name) IS NULL": "`to_timestamp_ltz`",
    "From_UnixTime(id) = name": "`from_unixtime`",
    "date_format(day, 'yyyy') = '2024'": "`date_format`",
    "day = current_date()": "`current_date`",
    "curdate() = day": "`curdate`",
    "local < localtimestamp()": "`localtimestamp`",
    "date_trunc('hour', local) = local": "`date_trunc`",
    "day = now()": "`day`",
    "name = 'x' AND id IN (1) AND now() IS NULL": "the string 'x'",
    "place.at = name": "`name`",
    "t.place.AT = name": "`name`",
    "place IS NULL": "`place` of the type struct",
    "array_contains(log, '2024-01-01')": "`array_contains`",
    "log IS NULL": "`log` of the type list",
    "by IS NULL": "`by` of the type map",
    "places IS NULL": "`places` of the type list",
    "CASE ts WHEN '2024-01-01' THEN TRUE END": "the string",
    # Some that do not depend on it.
    f"ts > {Z} AND name = name": "`name`",
    f"if(ts > {Z}, id, 2) = 1": "`if`",
    "isnull(ts)": "`isnull`",
}


@pytest.mark.parametrize("sql", FREE)
def test_sql_that_does_not_depend_on_the_zone(sql: str) -> None:
    assert dependence(sql, [TABLE]) is None


@pytest.mark.parametrize("sql", DEPENDENT)
def test_sql_that_may_depend_on_the_zone(sql: str) -> None:
    found = dependence(sql, [TABLE])
    assert found is not None
    assert found.startswith(DEPENDENT[sql])


@pytest.mark.parametrize("sql", ["", "ts > 'x", "ts > 1 -- 'x'", "ts /* ' */ > '2024-01-01' /* ' */", "ts = `x"])
def test_sql_that_is_not_read(sql: str) -> None:
    with pytest.raises(InvalidInputError, match="expression, character"):
        dependence(sql, [TABLE])


def test_a_merge_has_the_columns_of_both_sides() -> None:
    both = [TABLE, SOURCE]
    assert dependence("s.id = t.id AND s.day = t.day AND s.text = t.name", both) is None
    assert dependence("s.id = t.id AND s.ts > t.ts AND seen <> t.`odd ts`", both) is None
    for sql in ("s.day = t.ts", "s.text = t.ts", "s.seen = t.day", "t.local = s.ts", "seen = text"):
        assert dependence(sql, both) is not None, sql
    # A name that is a timestamp on one side only.
    other = pa.schema([("ts", pa.string())])
    assert dependence(f"s.ts = {Z}", [TABLE, other]) == "`s.ts` of the type string"
    # Fields of a struct may be called like columns.
    named = [pa.schema([("at", pa.string())]), TABLE]
    assert dependence("at = 'x'", named) is None
    assert dependence("place.at = 'x'", named) == "the string 'x'"


@pytest.mark.parametrize("sql", ["s.seen", "SEEN", "NULL", "(seen)", T, Z, "now()", f"CASE WHEN id = 1 THEN {Z} END"])
def test_values_of_timestamps(sql: str) -> None:
    assert dependence(sql, [TABLE, SOURCE], "ts") is None


@pytest.mark.parametrize(
    "sql",
    ["s.day", "text", "'2024-01-01 00:00:00'", "DATE '2024-01-01'", "local", f"if(TRUE, {Z}, text)", "place"],
)
def test_values_that_become_timestamps_by_the_zone(sql: str) -> None:
    assert dependence(sql, [TABLE, SOURCE], "ts") is not None


def test_values_of_other_columns() -> None:
    both = [TABLE, SOURCE]
    assert dependence("upper(text)", both, "name") is None
    assert dependence("day", both, "day") is None
    assert dependence("day", both, "no such column") is None
    for column in ("name", "day", "local", "t.name", "`name`", "place.city"):
        assert " of the type " in str(dependence("s.seen", both, column)), column
    for sql in ("t.place", "NULL", "id"):
        assert "place` of the type struct" in str(dependence(sql, both, "place"))


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
        "where may depend on the time zone of the session: it has timestamps and the string '2024-01-01'. deltic "
        f"evaluates SQL in UTC, and the session's time zone is {zone!r}: compare timestamps only with each other and "
        "with literals that have an offset, such as TIMESTAMP '2024-01-01 00:00:00+00:00', in SQL without other "
        "strings, dates, casts and functions, or set spark.sql.session.timeZone to UTC"
    )
    with pytest.raises(InvalidInputError, match=message):
        refuse_dependent("ts > '2024-01-01'", "where", zone, [TABLE])


def test_an_unknown_zone() -> None:
    with pytest.raises(InvalidInputError, match=r"does not tell .* or call deltic\.spark\.install\(spark\)"):
        refuse_dependent("ts > '2024-01-01'", "option 'replaceWhere'", None, [TABLE])


@pytest.mark.parametrize(
    "column",
    ["ts", "t.ts", "`odd ts`", "t.odd ts", "place.at", "t.place.`AT`", "t . `place` . at", "t.a.b", "`a.b`", "in.x"],
)
def test_columns_that_are_set(column: str) -> None:
    table = pa.unify_schemas([TABLE, pa.schema([("a.b", INSTANT), ("in", pa.struct([("x", INSTANT)]))])])
    refuse_dependent("seen", "v", "EST", [table, SOURCE], column)
    with pytest.raises(InvalidInputError, match="it has timestamps and `day` of the type date32"):
        refuse_dependent("day", "v", "EST", [table, SOURCE], column)


def test_values_that_are_converted() -> None:
    place = pa.struct([pa.field("at", INSTANT, False), pa.field("city", pa.string(), metadata={"comment": "x"})])
    log = pa.list_(pa.field("element", pa.timestamp("ns", "Europe/Berlin"), False))
    for given, column in (
        (INSTANT, "ts"),
        (pa.timestamp("ns", "Europe/Berlin"), "ts"),
        (pa.null(), "ts"),
        (pa.string(), "name"),
        (pa.date32(), "local"),
        (place, "place"),
        (log, "log"),
        (pa.map_(pa.string(), INSTANT), "by"),
        (INSTANT, "no such column"),
    ):
        refuse_conversion(given, column, TABLE, "v", "EST")
    for given, column in (
        (pa.date32(), "ts"),
        (pa.timestamp("us"), "ts"),
        (INSTANT, "name"),
        (INSTANT, "log"),
        (pa.struct([("at", pa.timestamp("us")), ("city", pa.string())]), "place"),
        (pa.struct([("city", pa.string()), ("at", INSTANT)]), "place"),
        (pa.list_(pa.string()), "log"),
        (pa.map_(pa.string(), pa.string()), "by"),
    ):
        refuse_conversion(given, column, TABLE, "v", "UTC")
        with pytest.raises(InvalidInputError, match=r"v has the type .* depends on the time zone"):
            refuse_conversion(given, column, TABLE, "v", "EST")


def test_every_function_of_time_is_judged() -> None:
    """A function of dates and times is added to the words of the module, or here: those of dates alone."""
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
    assert named <= of_dates | _TIME_WORDS
    assert not of_dates & _TIME_WORDS
    functions = (ROOT / "rust" / "protocol" / "src" / "expression" / "functions" / "mod.rs").read_text()
    for alias, name in re.findall(r'\("(\w+)", "(\w+)"\)', functions):
        assert (alias in _TIME_WORDS) == (name in _TIME_WORDS), alias
