"""The house rules, checked in the source: imports between modules, sizes of files, names that are not used."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import ROOT

# Each ladder lists modules from bottom to top. Modules in one set are on the same step and do not import each other. A
# folder stands for the files in it, which may import each other unless they make a circle.
PROTOCOL: list[set[str]] = [
    {"error"},
    {"json"},
    {"schema"},
    {"scalar"},
    {"expression"},
    {"predicate"},
    {"action"},
    {"property"},
    {"log", "deletion_vector", "stats", "constraint"},
    {"feature", "validation"},
    {"alter", "row_update", "replay", "prune"},
    {"log_bounds"},
    {"commit", "check", "row_merge"},
]
PAGES: list[set[str]] = [
    {"thrift", "pool", "snappy"},
    {"bits", "footer", "chunked_buffer"},
    {"limits", "footer_pruning"},
    {"decode", "encode"},
]
TABLE: list[set[str]] = [
    {"error"},
    {"footer", "events", "envelope", "once", "progress", "variant_extent", "vector_file"},
    {"log", "shredded"},
    {"checkpoint"},
    {"file_index"},
    {"snapshot"},
    {"history", "check", "scan", "write", "checkpoint_writer"},
    {"committers"},
    {"changes", "cleanup", "compaction", "manifests", "rewrite"},
    {"commit"},
    {"post_commit"},
    {"transaction"},
    {"backfill", "convert", "copies", "detail", "dml", "maintenance"},
    {"drop_feature", "purge", "repair"},
    {"table"},
]
STORE: list[set[str]] = [
    {"compute_threads", "counts", "error_context", "events", "failures", "listing", "put", "ranges", "stop"},
    {"location", "parallel", "syncing"},
    {"config", "pin"},
    {"http"},
    {"dynamodb"},
    {"cloud", "local"},
    {"file_writer"},
    {"storage"},
    {"conformance"},
]
BINDING: list[set[str]] = [
    {"errors", "finalizing"},
    {"clock", "events", "work"},
    {"trace"},
    {"progress"},
    {"runtime"},
    {"arrow", "check"},
    {"alter", "changes", "duckdb", "expression", "row_changes"},
    {"table"},
    {"transaction"},
    {"maintenance", "row_tasks", "write"},
]
PYTHON: list[set[str]] = [
    {"_deltic", "display", "duckdb_functions", "types"},
    {"errors", "hints"},
    {"arguments"},
    {"monitoring", "results"},
    {"reading"},
    {"inspection", "writing"},
    {"dml"},
    {"transaction"},
    {"table"},
    {"conversion", "tasks", "write"},
    {"cli/arguments", "cli/output"},
    {"cli/change", "cli/read"},
    {"cli/parser"},
    {"cli/__init__"},
    {"spark/location", "spark/options", "spark/tasks", "spark/types"},
    {"spark/intervals", "spark/sql"},
    {"spark/maintenance", "spark/read", "spark/writing"},
    {"spark/dml"},
    {"spark/data_source", "spark/delta_table"},
    {"spark/__init__"},
]
CRATES = {
    "protocol": PROTOCOL,
    "pages": PAGES,
    "store": STORE,
    "table": TABLE,
    "entry": [{"lib"}],
    "python": BINDING,
}

MOST_PRODUCTION_LINES = 600
MOST_LINES_OF_A_FOLDER = 2500
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


def use_trees(tree: str) -> Iterator[list[str]]:
    """The paths in a `use` tree: `a::{b, c::{d, e as f}}` has `a::b`, `a::c::d` and `a::c::e`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        name, _, alias = tree.partition(" as ")
        yield [*(part.strip() for part in name.split("::")), *([f"as {alias.strip()}"] if alias else [])]
        return
    depth, start = 0, 0
    inner = rest.rpartition("}")[0]
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if item := inner[start:at].strip():
                for path in use_trees(item):
                    yield [part.strip() for part in head.split("::") if part.strip()] + path
            start = at + 1


class Crate:
    """The modules of a crate by file, and the files that each imports, by paths, `super::` and re-exports."""

    def __init__(self, name: str) -> None:
        self.source = ROOT / "rust" / name / "src"
        self.modules: dict[tuple[str, ...], Path] = {}
        for path in rust_files(name):
            parts = path.relative_to(self.source).with_suffix("").parts
            if "tests" not in parts:
                self.modules[() if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts] = path
        self.texts = {module: code(path) for module, path in self.modules.items()}
        self.names = {module: dict(self.named(module)) for module in self.modules}

    def uses(self, module: tuple[str, ...]) -> Iterator[list[str]]:
        for tree in re.findall(r"\buse\s+([^;]+);", self.texts[module]):
            yield from use_trees(re.sub(r"\s+", " ", tree))

    def named(self, module: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
        """The names that `use` imports into a module, with their paths."""
        for path in self.uses(module):
            *path, last = path
            if last.startswith("as "):
                yield last.removeprefix("as "), path
            elif last == "self":
                yield path[-1], path
            else:
                yield last, [*path, last]

    def absolute(self, module: tuple[str, ...], path: list[str]) -> list[str] | None:
        """A path from the root of the crate; `None` if it leads out of the crate."""
        first, *rest = path
        if first == "crate":
            return rest
        if first == "self":
            return [*module, *rest]
        if first == "super":
            at = module[:-1]
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
            return [*at, *rest]
        return [*module, *path] if (*module, first) in self.modules else None

    def file(self, module: tuple[str, ...], path: list[str], depth: int = 0) -> tuple[str, ...] | None:
        """The module that a path leads to, through re-exports."""
        found = self.absolute(module, path)
        if found is None:
            return None
        at: tuple[str, ...] = ()
        for position, name in enumerate(found):
            if (*at, name) in self.modules:
                at = (*at, name)
            elif name in self.names[at] and depth < 8 and (at != module or position + 1 < len(found) or depth):
                return self.file(at, [*self.names[at][name], *found[position + 1 :]], depth + 1)
            else:
                return at
        return at

    def imports(self, module: tuple[str, ...]) -> set[tuple[str, ...]]:
        inline = re.sub(r"\buse\s+[^;]+;", "", self.texts[module])
        paths = [[part for part in path if not part.startswith("as ")] for path in self.uses(module)]
        paths += [path.split("::") for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", inline)]
        paths += [[name, "_"] for name in re.findall(r"(?<![\w:])(?!(?:crate|super|self)::)([a-z_]\w*)::\w", inline)]
        return {found for path in paths if (found := self.file(module, path)) is not None and found != module}

    def name(self, module: tuple[str, ...]) -> str:
        return "/".join(module) or "lib"

    def circles(self) -> set[frozenset[str]]:
        return circles({self.name(module): map(self.name, self.imports(module)) for module in self.modules if module})


def circles(imports: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """Import cycles: sets of files in which each file reaches all others. `imports` has the files that each imports."""
    graph = {name: set(imported) for name, imported in imports.items()}
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        pending = list(graph[start])
        while pending:
            if (name := pending.pop()) not in seen:
                seen.add(name)
                pending += graph.get(name, ())
        reached[start] = seen
    found = {frozenset(b for b in graph if a in reached[b] and b in reached[a]) for a in graph}
    return {circle for circle in found if len(circle) > 1}


def rung(ladder: list[set[str]], name: str) -> tuple[int, str] | None:
    """The step of a file on the ladder, and the entry for it: the longest prefix of its name."""
    parts = name.split("/")
    for length in range(len(parts), 0, -1):
        prefix = "/".join(parts[:length])
        if (height := step(ladder, prefix)) is not None:
            return height, prefix
    return None


@pytest.mark.parametrize("crate", CRATES)
def test_rust_modules_import_down_the_ladder(crate: str) -> None:
    ladder, files = CRATES[crate], Crate(crate)
    climbs = []
    for module, path in files.modules.items():
        if not module:
            continue
        own = rung(ladder, files.name(module))
        assert own is not None, f"{path}: add it to the ladder"
        for target in files.imports(module) - {()}:
            below = rung(ladder, files.name(target))
            assert below is not None, f"add `{files.name(target)}` to the ladder"
            if below[1] != own[1] and below[0] >= own[0]:
                climbs.append((files.name(module), files.name(target)))
    assert not climbs, f"these import modules on the same step or above: {climbs}"


@pytest.mark.parametrize("crate", CRATES)
def test_no_files_import_each_other_in_a_circle(crate: str) -> None:
    found = {frozenset(f"{crate}/{name}" for name in circle) for circle in Crate(crate).circles()}
    assert not found, [sorted(circle) for circle in found]


def test_imports_are_read_whole() -> None:
    trees = list(use_trees("crate::a::{self, b, c::{d, e as f}}"))
    assert trees == [
        ["crate", "a", "self"],
        ["crate", "a", "b"],
        ["crate", "a", "c", "d"],
        ["crate", "a", "c", "e", "as f"],
    ]
    files = Crate("store")
    assert ("config", "options") in files.imports(("cloud", "connect")), "by a path from the root"
    assert ("cloud", "finding") in files.imports(("cloud", "remote")), "by `super::`"
    assert ("local", "disk") in files.imports(("storage",)), "behind a re-export"


def lines_of_folders(files: Iterable[tuple[Path, int]]) -> dict[str, int]:
    """The lines of the files directly in each folder."""
    sizes: dict[str, int] = {}
    for path, lines in files:
        folder = path.parent.relative_to(ROOT).as_posix()
        sizes[folder] = sizes.get(folder, 0) + lines
    return sizes


def test_folders_are_small() -> None:
    rust = ((path, production(path.read_text())) for crate in CRATES for path in Crate(crate).modules.values())
    python = (
        (path, path.read_text().splitlines()) for path in (ROOT / "python").rglob("*.py*") if path.suffix != ".pyc"
    )
    sizes = lines_of_folders((path, len(lines)) for path, lines in itertools.chain(rust, python))
    assert {"rust/store/src/cloud", "python/deltic", "python/deltic/spark"} <= sizes.keys()
    large = {folder: size for folder, size in sizes.items() if size > MOST_LINES_OF_A_FOLDER}
    assert not large, large


@pytest.mark.parametrize("crate", CRATES)
def test_a_folder_of_modules_opens_with_mod_rs(crate: str) -> None:
    beside = [path for path in Crate(crate).modules.values() if path.with_suffix("").is_dir()]
    assert not beside, beside


def test_each_kind_of_error_has_a_class_by_the_compiler() -> None:
    """The match has no wildcard, so that a new kind does not compile without a Python class."""
    text = code(ROOT / "rust" / "python" / "src" / "errors.rs")
    assert "match kind {" in text
    assert not re.search(r"\b_ (if [^=]*)?=>", text)


def test_crates_depend_down_the_ladder() -> None:
    for crate, above in {
        "protocol": ("deltic_table", "deltic_python", "pyo3"),
        "store": ("deltic_table", "deltic_python", "pyo3", "arrow_array", "parquet::"),
        "pages": ("deltic_table", "deltic_python", "pyo3", "tokio"),
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
            assert crate == "store" or "object_store" not in code(path), path


def test_unsafe_lives_in_the_arrow_bridge() -> None:
    for path in ALL_RUST:
        if path.parent.name != "arrow":
            assert not re.search(r"\bunsafe\b", code(path).replace("unsafe_code", "")), path


def test_every_function_that_python_calls_turns_a_panic_into_an_error() -> None:
    """`#[entry]` is above everything that PyO3 makes callable. What PyO3 could derive is written as methods."""
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


def python_name(path: Path) -> str:
    """The name of a module on the ladder: its path in the package, `table/rows`, or `cli/__init__` for a package."""
    return path.relative_to(ROOT / "python" / "deltic").with_suffix("").as_posix()


PYTHON_MODULES = {python_name(path): path for path in (*ALL_PYTHON, ROOT / "python" / "deltic" / "_deltic.pyi")}
STARTS = {"__init__", "__main__"}
"""What imports the others. No module imports these."""


def imported_names(path: Path) -> Iterator[tuple[str, str | None]]:
    """The modules that a Python file imports, each with the name that is imported from it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from ((node.module, alias.name) for alias in node.names)


def python_imports(path: Path) -> set[str]:
    """The modules of deltic that a Python file imports."""
    found = set()
    for module, name in imported_names(path):
        package, _, rest = module.partition(".")
        if package != "deltic":
            continue
        # `from deltic.table import rows` imports a module, `from deltic.table.rows import RowMethods` a name in one.
        parts = rest.split(".") if rest else []
        places = [[*parts, name], [*parts, name, "__init__"]] if name is not None else []
        candidates = ["/".join(place) for place in (*places, parts, [*parts, "__init__"])]
        target = next((candidate for candidate in candidates if candidate in PYTHON_MODULES), None)
        assert target is not None, f"{path}: there is no module {module}"
        found.add(target)
    return found


@pytest.mark.parametrize("path", ALL_PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_modules_import_down_the_ladder(path: Path) -> None:
    name = python_name(path)
    if not name.startswith("spark/"):
        assert not any(module.startswith("pyspark") for module, _ in imported_names(path)), "only deltic.spark may"
    if name in STARTS:
        return
    own = rung(PYTHON, name)
    assert own is not None, f"add `{name}` to the ladder"
    for target in python_imports(path):
        below = rung(PYTHON, target)
        assert below is not None, f"`{target}` is not on the ladder"
        assert below[1] == own[1] or below[0] < own[0], (
            f"`{name}` imports `{target}`, which is on the same step or above"
        )


def test_no_python_files_import_each_other_in_a_circle() -> None:
    found = circles({name: python_imports(path) for name, path in PYTHON_MODULES.items()})
    assert not found, [sorted(circle) for circle in found]


def test_no_files_of_the_benchmarks_import_each_other_in_a_circle() -> None:
    """They import each other by the names of the files, in functions too."""
    files = {path.stem: path for path in (ROOT / "benches").rglob("*.py")}
    imports = {name: {module for module, _ in imported_names(path)} for name, path in files.items()}
    assert {"built", "logs", "work_tables"} <= imports["tables"]
    found = circles(imports)
    assert not found, [sorted(circle) for circle in found]


def test_python_imports_are_read_whole() -> None:
    imports = {name: python_imports(path) for name, path in PYTHON_MODULES.items()}
    assert "_deltic" in imports["write"], "by the name of a module"
    assert "table/table" in imports["write"], "by a name in a module"
    assert "cli/__init__" in imports["__main__"], "by a name in a package"
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == {frozenset("bc")}


def test_packages_of_python_are_empty() -> None:
    """To import a module runs the packages around it, so these would import what stands above the module."""
    packages = {name for name in PYTHON_MODULES if name.endswith("/__init__")}
    assert packages >= {"cli/__init__", "spark/__init__", "table/__init__", "spark/sql/__init__"}
    for name in packages - {"cli/__init__", "spark/__init__"}:
        assert len(ast.parse(PYTHON_MODULES[name].read_text()).body) == 1, f"{name} has more than its docstring"


@pytest.mark.parametrize("path", ALL_RUST + ALL_PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_are_small_and_open_with_what_they_are(path: Path) -> None:
    text = path.read_text()
    lines = production(text) if path.suffix == ".rs" else text.splitlines()
    assert len(lines) <= MOST_PRODUCTION_LINES
    if path.suffix == ".rs":
        opening = [line for line in lines[: MOST_OPENING_LINES + 5] if line.startswith("//!")]
        assert lines[0].startswith("//! "), "the first line must describe the module"
        assert len(lines[0]) > len("//! x."), "the first line must describe the module"
    else:
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, "a docstring must describe the module"
        opening = docstring.splitlines()
    assert len(opening) <= MOST_OPENING_LINES, "the docs at the top of a module are short; details belong to its items"


def named_proofs(opening: str) -> Iterator[str]:
    """The tests that a module's docs name: files, `module::test`, and after "Proved by" tests without a module."""
    flat = " ".join(line.removeprefix("//!").strip() for line in opening.splitlines())
    # Links to items of the code are in brackets.
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
            assert any(modules[of].union(of.parts).issuperset(places) for of in found), (
                f"{path}: there is no test {name}"
            )


def test_meaningless_names_are_not_used() -> None:
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


def messages_of_python(path: Path) -> Iterator[str]:
    """The string constants of a Python file, except docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def messages_of_rust(path: Path) -> Iterator[str]:
    """The string literals of a Rust file. A quote in a character literal does not begin one."""
    yield from re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r"""b?'\\?"'""", "", code(path)), re.DOTALL)


@pytest.mark.slow
def test_messages_do_not_use_the_word_predicate() -> None:
    """Arguments are called `filter` or condition. `predicate` is delta-spark's name for a commit parameter."""
    found = [
        (path.name, text)
        for paths, messages in ((ALL_PYTHON, messages_of_python), (ALL_RUST, messages_of_rust))
        for path in paths
        for text in messages(path)
        # Allowed: a key of `operationParameters`, or the name of a function or method of another library.
        if re.search(r"\bpredicates?\b", text, re.IGNORECASE) and not re.fullmatch(r"[\w.]*[pP]redicates?", text)
    ]
    assert found == []


OF_ARROW = (
    r"(?:U?[Ii]nt|Float|float)(?:8|16|32|64)|uint(?:8|16|32|64)|Utf8(?:View)?|utf8|halffloat|bool|Boolean"
    r"|(?:Date|date)(?:32|64)|(?:Decimal|decimal)(?:32|64|128|256)|(?:Large|large_)\w+|FixedSize(?:Binary|List)"
)
OF_SQL = r"BIGINT|SMALLINT|TINYINT|INTEGER|VARCHAR|DOUBLE|BOOLEAN"
NOT_OF_DELTA = re.compile(rf"(?<![\w`])(?:{OF_ARROW}|{OF_SQL}|i(?:8|16|32|64)|f(?:32|64))(?![\w(`])")
"""Names of types in Arrow, Rust or SQL. Delta's names are long, integer, double, string, boolean and so on."""


def speaks_of_other_types(text: str) -> bool:
    """Whether a message has a type name that is not Delta's, without saying whose it is."""
    if re.fullmatch(r"\w*", text) or re.search(r"\bArrow\b|\brun ends\b", text):
        return False  # a keyword or a key; a type that Delta does not have
    # SQL keeps its own type names: DOUBLE 'NaN', CHAR and VARCHAR, the list of types in filters.
    sql = re.sub(rf"\b(?:{OF_SQL}) '|\bCHAR(?: and|,) VARCHAR\b|types are DATE, [A-Z_, \\\n]+", "", text)
    return bool(NOT_OF_DELTA.search(sql))


@pytest.mark.parametrize(
    ("text", "is_other"),
    [
        ("column `a` is int64", True),
        ("the column `{name}` has the type Utf8", True),
        ("give a BIGINT", True),
        ("cast it to large_string, then", True),
        ("column `a` is a long", False),
        ("column `int64` is a long", False),
        ("the Arrow type uint64, which Delta cannot hold", False),
        ("write DOUBLE 'NaN'", False),
        ("BIGINT", False),
    ],
)
def test_names_of_other_types_are_recognized(text: str, is_other: bool) -> None:
    assert speaks_of_other_types(text) == is_other


@pytest.mark.slow
def test_messages_name_types_as_delta_does() -> None:
    found = [
        (path.name, text)
        for paths, messages in ((ALL_PYTHON, messages_of_python), (ALL_RUST, messages_of_rust))
        for path in paths
        if path.name != "arrow_name.rs"  # has Arrow's names, for types that Delta does not have
        for text in messages(path)
        if speaks_of_other_types(text)
    ]
    assert found == []
