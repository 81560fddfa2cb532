"""Options of `format("deltic")`, which are strings: by the names of `deltic.spark`, and by Spark's and Delta's names.

Names are case-insensitive, as in Spark. Errors name unknown options, and options that are given twice by different
names. Proved by `tests/spark/test_options.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from deltic import _deltic
from deltic.arguments import byte_size, check_int, check_str, epoch_ms
from deltic.errors import InvalidInputError

__all__ = [
    "TIMES",
    "in_zone",
    "is_utc",
    "location",
    "no_catalog",
    "read_arguments",
    "sql_text",
    "storage_options",
    "write_arguments",
]

_OF_A_CATALOG = {"provider", "owner", "location", "external"}
"""The options that Spark adds when it asks for the columns of a table for its catalog."""
_STORAGE = "storage."
_SPELLED = {name.lower(): name for name in _deltic.PROPERTIES}
_REFUSED = {
    "replaceon": (
        "replaceOn",
        "use 'replaceWhere' with a condition on the table's columns, or deltic.spark.merge",
    ),
    "replaceusing": (
        "replaceUsing",
        "use 'partitionOverwriteMode' = 'dynamic' if these are the partition columns, or deltic.spark.merge",
    ),
    "targetalias": ("targetAlias", "it is for replaceOn, which there is not either"),
    "writepartitioncolumns": (
        "writePartitionColumns",
        "set the table property 'delta.writePartitionColumnsToParquet' to true",
    ),
}
"""Options of Delta's writes that do not exist here: their spelling, and what to use."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([01]?[0-9])(?::([0-5]?[0-9])(?::([0-5][0-9]))?)?")
"""Time zones that are offsets, as Spark accepts them."""
_UTC = {"UTC", "UCT", "UT", "Z", "Zulu", "Universal", "GMT", "GMT0", "Greenwich"}
"""Names of UTC, which may begin with `Etc/`."""

Parse: TypeAlias = Callable[[str, str], Any]
"""Converts the string of an option, with its name for messages, to an argument; None if it has no effect."""
Names: TypeAlias = Mapping[str, tuple[str, Parse]]
"""By the name of an option: its argument, and the conversion."""


def location(options: Mapping[str, str]) -> str:
    """The table's location, which Spark passes as an option."""
    path = options.get("path")
    if path is None:
        raise InvalidInputError(f"no path: pass the table's location to load() or save(). {no_catalog()}")
    return path


def no_catalog(path: str | None = None, name: str = "my_table") -> str:
    """Why a table of Spark's catalog does not work, and what to write instead, with a path and name that are known."""
    # Spark makes a URI of a path: file:/data/t.
    path = path and re.sub("^file:/+", "/", path)
    place, quoted = ("path", "'...'") if path is None else (repr(path), sql_text(path))
    return (
        "A table of Spark's catalog does not work with format 'deltic', because Spark passes neither its location nor "
        "its options to a Python data source when the table is used. Make a view in the catalog with "
        f"deltic.spark.create_view(spark, {name!r}, {place}); or in SQL one of the session, of the present version: "
        f"CREATE TEMPORARY VIEW {name} USING deltic OPTIONS (path {quoted}). Or use load(path) and save(path)"
    )


def sql_text(text: str) -> str:
    """A string as a literal of Spark's SQL, in which Spark substitutes no variables."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The store's settings: the options with a prefix."""
    return {name[len(_STORAGE) :]: value for name, value in options.items() if name.lower().startswith(_STORAGE)}


def write_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `deltic.spark.write` for the options of a write; other options are refused."""
    found = _arguments({name: text for name, text in options.items() if not _is_property(name)}, _WRITE)
    properties = dict(_property(name, text) for name, text in options.items() if _is_property(name))
    others = found.get("properties", {})
    # Anything but a JSON object is refused where the arguments are checked.
    if properties and isinstance(others, dict):
        for name in properties.keys() & others.keys():
            raise InvalidInputError(f"options {name!r} and 'properties' both have the table property {name}: give one")
        found["properties"] = {**others, **properties}
    return found


def _is_property(option: str) -> bool:
    return option.lower().startswith("delta.")


def _property(option: str, text: str) -> tuple[str, str]:
    """A table property that is given as an option of a write."""
    if option.lower().startswith(("delta.feature.", "delta.constraints.")):
        instead = "deltic.Table(uri).add_feature(...) and add_constraint(...)"
        raise InvalidInputError(f"option {option!r}: Spark does not keep the case of its name: use {instead}")
    # The core refuses unknown names, with similar ones.
    return _SPELLED.get(option.lower(), option), text


def read_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a read: `filter`, `partitions`, `version` or `timestamp`; or `changes`, `start`, `end`.

    `changes`: whether the change data feed is read, from `start` to `end`, as for `deltic.Table.changes`.
    `all_columns`: whether a given schema must have all columns.
    """
    found = _arguments(options, _READ)
    changes = found.setdefault("changes", False)
    if "version" in found and "timestamp" in found:
        raise InvalidInputError("options for a version and for a timestamp both say which rows are read: give one")
    if not changes and ("start" in found or "end" in found):
        raise InvalidInputError(
            "options startingVersion, startingTimestamp, endingVersion and endingTimestamp are for reads with "
            "readChangeFeed=true"
        )
    if changes and "start" not in found:
        raise InvalidInputError("readChangeFeed=true needs the option startingVersion or startingTimestamp")
    for name in ("version", "timestamp", "partitions"):
        if changes and name in found:
            raise InvalidInputError(
                f"the option for {name} is not for reads with readChangeFeed=true, which read what the commits from "
                "startingVersion to endingVersion changed, in one task: leave it out"
            )
    return found


def _arguments(options: Mapping[str, str], names: Names) -> dict[str, Any]:
    spelled = {name.lower(): name for name in names}
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for option, text in options.items():
        _refuse_what_spark_adds(option, options)
        if option.lower() == "path" or option.lower().startswith(_STORAGE):
            continue
        if names is _WRITE and option.lower() in _REFUSED:
            spelling, instead = _REFUSED[option.lower()]
            raise InvalidInputError(f"format 'deltic' has no option {spelling!r}: {instead}")
        name = spelled.get(option.lower())
        if name is None:
            raise InvalidInputError(f"unknown option {option!r} of format 'deltic'; {_nearest(option, names)}")
        argument, parse = names[name]
        value = parse(text, f"option {name!r}")
        if value is None:
            continue
        if argument in given:
            raise InvalidInputError(f"options {given[argument]!r} and {name!r} both say the same thing: give one")
        given[argument] = name
        found[argument] = value
    return found


def _nearest(option: str, names: Names) -> str:
    """The options that are spelled like an unknown one; all if none is."""
    spelled = {name.lower(): name for name in names}
    near = [spelled[name] for name in get_close_matches(option.lower(), spelled, cutoff=0.7)]
    if near:
        return f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}"
    return f"there are {', '.join(sorted(['path', *names]))} and storage.*"


def _refuse_what_spark_adds(option: str, options: Mapping[str, str]) -> None:
    if option.lower() == "pushdown":
        raise InvalidInputError(
            "format 'deltic' has no option 'pushdown': give the filter itself, in the option 'filter' or to "
            "deltic.spark.read(filter=...), because Spark may mix up the filters that it pushes"
        )
    if option.lower() == "paths":
        raise InvalidInputError(
            "load() takes the location of one table, not several: load each, and union the DataFrames"
        )
    if option.lower() in _OF_A_CATALOG:
        raise InvalidInputError(no_catalog(options.get("path")))


def _text(text: str, _option: str) -> str:
    return text


def _word(text: str, _option: str) -> str:
    return text.strip().lower()


def _codec(text: str, _option: str) -> str:
    word = text.strip().lower()
    return {"none": "uncompressed", "lz4_raw": "lz4"}.get(word, word)


def _flag(text: str, option: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise InvalidInputError(f"{option} must be true or false, not {text!r}")
    return word == "true"


def _if_true(value: str) -> Parse:
    return lambda text, option: value if _flag(text, option) else None


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(f"{option} must be a whole number, not {text!r}") from None


def _at_least(least: int) -> Parse:
    return lambda text, option: check_int(_number(text, option), option, least)


def _most(text: str, option: str) -> int | None:
    """As in Spark: zero and negative numbers mean no limit."""
    number = _number(text, option)
    return number if number > 0 else None


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{option} must be a JSON object: {error}") from None


def _columns(text: str, option: str) -> Any:
    if not text.lstrip().startswith("["):
        return [column.strip() for column in text.split(",")]
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{option} must be names with commas between them, or a JSON array of names"
        raise InvalidInputError(f"{message}: {error}") from None


def _instant(text: str, option: str) -> str:
    """A time that does not depend on a session's time zone."""
    if _parsed(text, option).tzinfo is None:
        raise InvalidInputError(
            f"{option} has no offset from UTC, and Spark does not tell a Python data source the time zone of the "
            f"session: write it like '2026-03-01T12:00:00Z', or call deltic.spark.install(spark), not {text!r}"
        )
    return text


def _parsed(text: str, option: str) -> datetime:
    epoch_ms(check_str(text, option), option)
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)


def _zone(zone: str) -> tzinfo:
    """A session's time zone: one of the tz database, or an offset."""
    if (offset := _OFFSET.fullmatch(zone)) is None:
        return timezone.utc if zone == "Z" else ZoneInfo(zone)
    hours, minutes, seconds = (int(part or 0) for part in offset.group(2, 3, 4))
    length = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-length if offset[1] == "-" else length)


def is_utc(zone: str) -> bool:
    """Whether a session's time zone is UTC, by one of its names or as an offset."""
    if zone.removeprefix("Etc/") in _UTC:
        return True
    return _OFFSET.fullmatch(zone) is not None and _zone(zone).utcoffset(None) == timedelta(0)


def in_zone(text: str, option: str, zone: str) -> str:
    """A time with an offset from UTC: its own, or that of a time zone with a name of Spark."""
    moment = _parsed(text, option)
    if moment.tzinfo is not None:
        return text
    try:
        return moment.replace(tzinfo=_zone(zone)).isoformat()
    except (KeyError, ValueError, OSError):
        message = (
            f"{option} has no offset from UTC, and the session's time zone {zone!r} is no offset either and not one of "
            "the tz database"
        )
        raise InvalidInputError(f"{message}: write it like '2026-03-01T12:00:00Z'") from None


_READ: Names = {
    "filter": ("filter", _text),
    "partitions": ("partitions", _at_least(1)),
    "version": ("version", _number),
    "versionAsOf": ("version", _number),
    "timestamp": ("timestamp", _text),
    "timestampAsOf": ("timestamp", _instant),
    "readChangeFeed": ("changes", _flag),
    "readChangeData": ("changes", _flag),
    "startingVersion": ("start", _at_least(0)),
    "startingTimestamp": ("start", _instant),
    "endingVersion": ("end", _at_least(0)),
    "endingTimestamp": ("end", _instant),
    "all_columns": ("all_columns", _flag),
}
TIMES = tuple(name for name, (_argument, parse) in _READ.items() if parse is _instant)
"""Options whose times without an offset are in the session's time zone."""
_WRITE: Names = {
    "partition_by": ("partition_by", _columns),
    "replace_where": ("replace_where", _text),
    "replaceWhere": ("replace_where", _text),
    "partition_overwrite": ("partition_overwrite", _word),
    "partitionOverwriteMode": ("partition_overwrite", _word),
    "schema_mode": ("schema_mode", _word),
    "mergeSchema": ("schema_mode", _if_true("merge")),
    "overwriteSchema": ("schema_mode", _if_true("overwrite")),
    "data_change": ("data_change", _flag),
    "dataChange": ("data_change", _flag),
    "sort_by": ("sort_by", _columns),
    "target_file_size": ("target_file_size", byte_size),
    "memory_limit": ("memory_limit", byte_size),
    "max_rows_per_file": ("max_rows_per_file", _number),
    "maxRecordsPerFile": ("max_rows_per_file", _most),
    "row_group_rows": ("row_group_rows", _number),
    "compression": ("compression", _codec),
    "compression_level": ("compression_level", _number),
    "column_options": ("column_options", _json),
    "properties": ("properties", _json),
    "name": ("name", _text),
    "description": ("description", _text),
    "user_metadata": ("user_metadata", _text),
    "userMetadata": ("user_metadata", _text),
    "commit_info": ("commit_info", _json),
    "app_id": ("app_id", _text),
    "txnAppId": ("app_id", _text),
    "app_version": ("app_version", _number),
    "txnVersion": ("app_version", _number),
    "max_attempts": ("max_attempts", _number),
    "engine": ("engine", _word),
    "optimize_write": ("optimize_write", _flag),
    "optimizeWrite": ("optimize_write", _flag),
}
