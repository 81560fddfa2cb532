"""Every table property that deltic accepts is used in its code, or is documented as not used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "rust/protocol/src/property/table.rs"
ACCESSORS = ROOT / "rust/protocol/src/property/properties.rs"
# Lists the properties that a winner may change, which does not count as use.
CONFLICTS = ROOT / "rust/protocol/src/commit/conflict/metadata.rs"

NOT_USED = ("hint for other engines", "not used by deltic")


def properties() -> list[tuple[str, str, str]]:
    """Name, kind and description of each property."""
    found = re.findall(r'row\("([^"]+)", Allowed::(\w+), "[^"]*", "([^"]*)"\)', TABLE.read_text(encoding="utf-8"))
    assert len(found) > 50
    return found


def sources() -> str:
    files = [path for path in ROOT.glob("rust/*/src/**/*.rs") if path not in (TABLE, ACCESSORS, CONFLICTS)]
    lines = "\n".join(path.read_text(encoding="utf-8") for path in files).splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("//"))


def accessors(name: str) -> list[str]:
    """The functions of `Properties` that read the property."""
    functions = re.split(r"\n    (?=pub )", ACCESSORS.read_text(encoding="utf-8"))
    heads = [re.match(r"pub(?:\(crate\))? fn (\w+)", function) for function in functions]
    return [
        head.group(1)
        for head, function in zip(heads, functions, strict=True)
        if head and f'"{name}"' in re.sub(r"(?m)^\s*//.*$", "", function)
    ]


@pytest.mark.slow
def test_every_property_is_read() -> None:
    source = sources()
    unread = [
        name
        for name, kind, about in properties()
        if kind != "Internal"
        and not about.startswith(NOT_USED)
        and f'"{name}"' not in source
        and not any(f".{accessor}(" in source for accessor in accessors(name))
    ]
    assert unread == []


@pytest.mark.slow
def test_properties_documented_as_unused_are_unused() -> None:
    source = sources()
    used = [
        name
        for name, _, about in properties()
        if about.startswith("not used by deltic")
        and (f'"{name}"' in source or any(f".{accessor}(" in source for accessor in accessors(name)))
    ]
    assert used == []
