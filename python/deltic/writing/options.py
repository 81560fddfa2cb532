"""Checks the options of a write, and converts them to the form of the core.

Checks that depend on the table or the columns are not here, such as whether a codec has a level or a column an
encoding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from deltic.arguments import (
    MIN_INT64,
    Mode,
    PartitionOverwrite,
    SchemaMode,
    byte_size,
    check_bool,
    check_choice,
    check_filter,
    check_float,
    check_int,
    check_name_or_names,
    check_properties,
    check_str,
    json_object,
    json_or_string,
)
from deltic.errors import InvalidInputError

__all__ = ["checked", "core_options"]

Check = Callable[[Any, str], Any]


def core_options(mode: object, options: Mapping[str, Any]) -> str:
    """The options of a write as JSON for the core. None means that an option is not given."""
    return json.dumps({"mode": check_choice(mode, "mode", get_args(Mode)), **checked(options)})


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, each in the type of the core."""
    found: dict[str, Any] = {}
    files: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name == "data_change":
            found["rearrange_only"] = not check_bool(value, name)
        elif name in _FILES:
            files[name] = _FILES[name](value, name)
        else:
            found[name] = _TABLE[name](value, name)
    return {**found, "files": files} if files else found


def _at_least(least: int) -> Check:
    return lambda value, argument: check_int(value, argument, least)


def _column_options(value: object, argument: str) -> dict[str, Any]:
    chosen = {}
    for name, options in _mapping(value, argument).items():
        place = f"{argument}[{name!r}]"
        chosen[check_str(name, f"a name in {argument}")] = _members(options, place, _COLUMN)
    return chosen


def _bloom_filter(value: object, argument: str) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return _members(value, argument, _BLOOM_FILTER)
    return {} if check_bool(value, argument, or_else="a mapping of fpp and ndv") else None


def _members(value: object, argument: str, known: Mapping[str, Check]) -> dict[str, Any]:
    """A mapping of options with known names, without those that are None."""
    found = {}
    for name, member in _mapping(value, argument).items():
        if name not in known:
            raise InvalidInputError(f"{argument} has no option {name!r}; there are {', '.join(known)}")
        if member is not None:
            found[name] = known[name](member, f"{argument}[{name!r}]")
    return found


def _mapping(value: object, argument: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        kind = "None" if value is None else type(value).__name__
        raise InvalidInputError(f"{argument} must be a mapping of options by name, not {kind}")
    return value


_BLOOM_FILTER: dict[str, Check] = {"fpp": check_float, "ndv": _at_least(1)}
_COLUMN: dict[str, Check] = {
    "encoding": check_str,
    "dictionary": check_bool,
    "compression": check_str,
    "compression_level": _at_least(MIN_INT64),
    "bloom_filter": _bloom_filter,
}
_FILES: dict[str, Check] = {
    "target_file_size": byte_size,
    "max_rows_per_file": _at_least(1),
    "row_group_rows": _at_least(1),
    "compression": check_str,
    "compression_level": _at_least(MIN_INT64),
    "column_options": _column_options,
    "sort_by": check_name_or_names,
    "memory_limit": byte_size,
}
_TABLE: dict[str, Check] = {
    "partition_by": check_name_or_names,
    "partition_overwrite": lambda value, argument: check_choice(value, argument, get_args(PartitionOverwrite)),
    "replace_where": check_filter,
    "schema_mode": lambda value, argument: check_choice(value, argument, get_args(SchemaMode)),
    "properties": lambda value, _argument: check_properties(value),
    "name": check_str,
    "description": check_str,
    "user_metadata": json_or_string,
    "commit_info": json_object,
    "engine_evaluates": check_bool,
    "app_id": check_str,
    "app_version": _at_least(MIN_INT64),
}
