"""The house rules, read from the source: who may import whom, how large a file gets, what names are not used."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

# Lower first. Modules in one set are on the same step and do not import each other.
PROTOCOL: list[set[str]] = [
    {"error"},
    {"json"},
    {"schema"},
    {"scalar"},
    {"expression"},
    {"predicate"},
    {"action"},
    {"property"},
    {"log", "deletion_vector", "stats"},
    {"feature", "legality"},
    {"replay", "prune"},
    {"log_bounds"},
    {"conflict", "check"},
]
TABLE: list[set[str]] = [
    {"error"},
    {"footer", "events"},
    {"large", "once", "parallel"},
    {"storage"},
    {"log_reader", "checkpoint"},
    {"tail"},
    {"file_table"},
    {"snapshot"},
    {"history", "check", "scan", "write", "checkpoint/write", "checkpoint/sidecars", "checkpoint/runs"},
    {"commit", "changes", "cleanup", "compaction"},
    {"transaction"},
    {"trail"},
    {"after_commit"},
    {"job"},
    {"draft"},
    {"backfill"},
]
BINDING: list[set[str]] = [
    {"errors"},
    {"events"},
    {"runtime", "clock"},
    {"arrow", "check"},
    {"changes", "expression"},
    {"table"},
    {"transaction"},
    {"write"},
]
PYTHON: list[set[str]] = [
    {"allocator", "errors", "display", "hints", "_deltic"},
    {"arguments"},
    {"scan", "check"},
    {"snapshot", "data"},
    {"transaction"},
    {"table"},
    {"write", "cli", "tasks"},
    {"spark/types", "spark/location"},
    {"spark/schema"},
    {"spark/read", "spark/write"},
    {"spark/source"},
    {"spark"},
]
CRATES = {"protocol": PROTOCOL, "table": TABLE, "entry": [{"lib"}], "python": BINDING}

MOST_PRODUCTION_LINES = 600
MOST_OPENING_LINES = 15


def step(ladder: list[set[str]], module: str) -> int | None:
    return next((height for height, modules in enumerate(ladder) if module in modules), None)


def rust_files(crate: str) -> list[Path]:
    return sorted((ROOT / "rust" / crate / "src").rglob("*.rs"))


ALL_RUST = [path for crate in CRATES for path in rust_files(crate)]
ALL_PYTHON = sorted((ROOT / "python").rglob("*.py"))


def production(text: str) -> list[str]:
    """The lines of a Rust file outside its test modules."""
    lines: list[str] = []
    skipping = armed = False
    for line in text.splitlines():
        if line.startswith("#[cfg(test)]"):
            armed = True
        elif armed and re.match(r"(pub(\(\w+\))? )?mod \w+ \{", line):
            skipping, armed = True, False
        elif armed and re.match(r"(pub(\(\w+\))? )?mod \w+;", line):
            armed = False
        elif skipping:
            skipping = line != "}"
        elif not armed or not line.startswith("#["):
            armed = False
            lines.append(line)
    return lines


def code(path: Path) -> str:
    """A Rust file without tests, comments and documentation."""
    return "\n".join(line for line in production(path.read_text()) if not line.lstrip().startswith("//"))


def crate_paths(text: str) -> Iterator[str]:
    """First segments of `crate::…` paths, grouped imports included."""
    yield from re.findall(r"\bcrate::(\w+)", text)
    for group in re.findall(r"\bcrate::\{((?:[^{}]|\{[^{}]*\})*)\}", text):
        flat = re.sub(r"\{[^{}]*\}", "", group)
        for item in flat.split(","):
            name = re.match(r"\s*(\w+)", item)
            if name:
                yield name.group(1)


@pytest.mark.parametrize("crate", CRATES)
def test_rust_modules_import_down_the_ladder(crate: str) -> None:
    ladder = CRATES[crate]
    source = ROOT / "rust" / crate / "src"
    for path in rust_files(crate):
        name = path.relative_to(source).with_suffix("").as_posix()
        if name == "lib":
            continue
        own = name if step(ladder, name) is not None else name.split("/")[0]
        height = step(ladder, own)
        assert height is not None, f"{path}: put `{own}` on the ladder"
        for target in crate_paths(code(path)):
            below = step(ladder, target)
            if target == own.split("/")[0] or (below is None and not (source / target).with_suffix(".rs").exists()):
                continue
            assert below is not None, f"{path}: put `{target}` on the ladder"
            assert below < height, f"{path}: `{own}` imports `{target}`, which stands above or beside it"


def test_crates_depend_down_the_ladder() -> None:
    for crate, above in {
        "protocol": ("deltic_table", "deltic_python", "pyo3"),
        "table": ("deltic_python", "pyo3"),
    }.items():
        manifest = (ROOT / "rust" / crate / "Cargo.toml").read_text().split("[dev-dependencies]")[0]
        for name in above:
            assert name.replace("_", "-") not in manifest
            assert not any(name in code(path) for path in rust_files(crate))


def test_the_protocol_is_pure() -> None:
    manifest = (ROOT / "rust" / "protocol" / "Cargo.toml").read_text().split("[dev-dependencies]")[0]
    for crate in ("tokio", "object_store", "parquet", "rand", "pyo3", "reqwest"):
        assert not re.search(rf"^{crate}\b", manifest, re.MULTILINE), crate
    for path in rust_files("protocol"):
        for impure in ("SystemTime::now", "Instant::now", "Utc::now", "std::fs", "std::env", "async fn"):
            assert impure not in code(path), f"{path}: {impure}"


def test_only_storage_names_the_object_store() -> None:
    for crate in CRATES:
        for path in rust_files(crate):
            if "storage" not in path.relative_to(ROOT / "rust" / crate / "src").parts:
                assert "object_store" not in code(path), path


def test_unsafe_lives_in_the_arrow_bridge() -> None:
    for path in ALL_RUST:
        if path.parent.name != "arrow":
            assert not re.search(r"\bunsafe\b", code(path).replace("unsafe_code", "")), path


def test_every_function_that_python_calls_turns_a_panic_into_an_error() -> None:
    """`#[entry]` stands above whatever PyO3 makes callable; what it would make by itself is written out instead."""
    found = 0
    for path in rust_files("python"):
        lines = code(path).splitlines()
        for before, line in itertools.pairwise(lines):
            if re.match(r"\s*#\[(pyfunction|pymethods)\b", line):
                found += 1
                assert before.strip() == "#[entry]", f"{path}: {line.strip()} without #[entry] above it"
            if derived := re.match(r"\s*#\[pyclass\((.*)\)\]", line):
                options = set(re.findall(r"\w+", derived[1]))
                made = options & {"eq", "eq_int", "ord", "hash", "str", "get_all", "set_all", "new"}
                assert not made, f"{path}: write {made} as methods, which have #[entry]"
            assert not re.match(r"\s*#\[pyo3\((get|set)\b", line), f"{path}: write it as a method, which has #[entry]"
    assert found > 15


@pytest.mark.parametrize("path", ALL_PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_modules_import_down_the_ladder(path: Path) -> None:
    package = ROOT / "python" / "deltic"
    name = path.relative_to(package).with_suffix("").as_posix()
    if name in ("__init__", "__main__"):
        return
    own = name.removesuffix("/__init__")
    height = step(PYTHON, own)
    assert height is not None, f"put `{own}` on the ladder"
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            # `from deltic import _deltic` names a module, `from deltic.scan import Plan` one in a module.
            targets = [f"deltic.{alias.name}" for alias in node.names] if node.module == "deltic" else [node.module]
        for target in targets:
            assert not target.startswith("pyspark") or own.startswith("spark"), "only deltic.spark imports pyspark"
            if target.startswith("deltic."):
                below = step(PYTHON, target.removeprefix("deltic.").replace(".", "/"))
                assert below is not None, f"put `{target}` on the ladder"
                assert below < height, f"`{own}` imports `{target}`, which stands above or beside it"


@pytest.mark.parametrize("path", ALL_RUST + ALL_PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_are_small_and_open_with_what_they_are(path: Path) -> None:
    text = path.read_text()
    lines = production(text) if path.suffix == ".rs" else text.splitlines()
    assert len(lines) <= MOST_PRODUCTION_LINES
    if path.suffix == ".rs":
        opening = [line for line in lines[: MOST_OPENING_LINES + 5] if line.startswith("//!")]
        assert lines[0].startswith("//! "), "say in the first line what the module is"
        assert len(lines[0]) > len("//! x."), "say in the first line what the module is"
    else:
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, "say in a docstring what the module is"
        opening = docstring.splitlines()
    assert len(opening) <= MOST_OPENING_LINES, "a module opens with a few lines; the rest belongs to its items"


def named_proofs(opening: str) -> Iterator[str]:
    """What an opening names as proof: files of tests, `module::test`, and after "Proved by" tests without a module."""
    flat = " ".join(line.removeprefix("//!").strip() for line in opening.splitlines())
    # Links to items of the code stand in brackets.
    yield from re.findall(r"(?<!\[)`(tests/[\w/.]+|(?!deltic_)[a-z_]\w*(?:::[a-z_]\w*)+)`", flat)
    if "Proved by" in flat:
        yield from re.findall(r"(?<!\[)`([a-z]+(?:_[a-z0-9]+)+)`", flat.split("Proved by")[1])


def test_the_tests_that_modules_name_exist() -> None:
    rust = {path: path.read_text() for path in (*(ROOT / "tests" / "rust").rglob("*.rs"), *ALL_RUST)}
    modules = {path: set(re.findall(r"\bmod (\w+)", text)) | {path.stem} for path, text in rust.items()}
    tests = {path: set(re.findall(r"\b(?:fn|mod) (\w+)", text)) for path, text in rust.items()}
    for path in ALL_RUST:
        opening = "\n".join(line for line in path.read_text().splitlines() if line.startswith("//!"))
        for name in named_proofs(opening):
            if name.startswith("tests/"):
                assert (ROOT / name).is_file(), f"{path}: there is no {name}"
                continue
            *places, test = name.split("::")
            found = (of for of in rust if test in tests[of] and ("tests" in of.parts or of.is_relative_to(path.parent)))
            assert any(modules[of].union(of.parts).issuperset(places) for of in found), f"{path}: no test is {name}"


def test_names_that_say_nothing_are_not_used() -> None:
    banned = {"utils", "util", "common", "helpers", "helper", "models", "manager", "handler", "next", "v2", "misc"}
    for folder in ("rust", "python", "tests", "benches", "examples", "docs", "fuzz/bin", "fuzz/targets"):
        for path in (ROOT / folder).rglob("*"):
            assert path.stem.lower() not in banned, path
    kind = re.compile(
        r"\b(?:struct|enum|trait|type|class)\s+((?:Raw|Eager)[A-Z]\w*|\w*(?:Manager|Handler|Helper|Utils?))\b"
    )
    for path in ALL_RUST + ALL_PYTHON:
        assert not kind.search(path.read_text()), f"{path}: {kind.search(path.read_text())}"


def texts() -> Iterator[Path]:
    suffixes = {".rs", ".py", ".pyi", ".md", ".toml", ".txt", ".yml", ".sh", ""}
    for folder in ("rust", "python", "tests", "benches", "examples", "docs", ".ci", "fuzz/bin", "fuzz/targets"):
        yield from (p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix in suffixes)
    yield from (ROOT / name for name in ("Makefile", "README.md", "Cargo.toml", "pyproject.toml", "fuzz/run"))


def test_nothing_is_left_to_do_and_no_machine_is_named() -> None:
    left = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
    machine = re.compile(r"(?<![\w.])/(?:root|home|work|Users)/\w")
    for path in texts():
        if "__pycache__" in path.parts:
            continue
        text = path.read_text(errors="replace")
        assert not left.search(text), f"{path}: {left.search(text)}"
        assert not machine.search(text), f"{path}: {machine.search(text)}"
