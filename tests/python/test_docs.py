"""The examples in the documentation run, and its generated parts are current."""

import ast
import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import ROOT
from pages import python_of

import deltic
from deltic.cli.parser import command_parser

PACKAGE = ROOT / "python" / "deltic"
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if "spark" not in path.relative_to(PACKAGE).parts and ">>> " in path.read_text()
]
"""Modules with examples; `tests/spark/test_read.py` runs those that need Spark."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert result.attempted > 0


def test_the_public_classes_and_functions_have_examples() -> None:
    for thing in (deltic, deltic.Table, deltic.Plan, deltic.Merge, deltic.create, deltic.write):
        assert ">>>" in (thing.__doc__ or ""), thing


@pytest.mark.parametrize("name", [name for name in deltic.__all__ if not name.endswith("Error")])
def test_every_public_name_is_documented(name: str) -> None:
    thing = getattr(deltic, name)
    assert thing.__doc__
    for member in vars(thing) if isinstance(thing, type) else ():
        if not member.startswith("_"):
            assert getattr(thing, member).__doc__, f"{name}.{member}"


def run(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize("name", ["read", "write", "spark_pipeline"])
@pytest.mark.slow
def test_examples_run(root: Path, tmp_path: Path, name: str) -> None:
    path = root / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) < 60
    result = run([str(path)], tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout


def readme_block() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(block)


@pytest.mark.slow
def test_the_readme_example_is_short_and_runs(tmp_path: Path) -> None:
    block = readme_block()
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= 30
    result = run(["-c", block], tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "files=1/2" in result.stdout
    assert "AA" in result.stdout


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, f"{page} has no heading {heading!r}"
    return found.group(1)


def test_the_readme_says_how_to_install() -> None:
    assert "pip install" in section("README.md", "Install")


def test_the_readme_names_every_command_and_every_extra(root: Path) -> None:
    commands = next(action.choices for action in command_parser()._actions if isinstance(action.choices, dict))
    readme = (root / "README.md").read_text()
    (about_commands,) = re.findall(r"^The wheel also installs a command.*?\n\n", readme, re.DOTALL | re.MULTILINE)
    assert commands.keys() <= set(re.findall(r"`(?:deltic )?(\w+)`", about_commands))
    project = (root / "pyproject.toml").read_text()
    (extras,) = re.findall(r"^\[project.optional-dependencies\]\n(.*?)\n\n", project, re.DOTALL | re.MULTILINE)
    names = set(re.findall(r"^(\w+) = ", extras, re.MULTILINE))
    assert names <= set(re.findall(r"`(\w+)`", section("README.md", "Install")))


def test_an_example_opens_a_table_on_s3_without_dynamodb() -> None:
    text = section("docs/howto.md", "Open a table on S3")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "s3://" in block
    assert "dynamodb" not in block.lower()


@pytest.mark.parametrize("scan", [deltic.Table.scan, deltic.Snapshot.scan])
def test_the_help_of_a_scan_has_its_arguments(scan: object) -> None:
    """The docstring describes the arguments itself, with an example of a filter."""
    text = scan.__doc__ or ""
    assert re.search(r"^ +columns: .*None for all", text, re.MULTILINE)
    assert re.search(r"^ +filter: SQL such as `\"", text, re.MULTILINE)


def test_the_howto_has_many_tasks(root: Path) -> None:
    assert len(re.findall(r"^### ", (root / "docs" / "howto.md").read_text(), re.MULTILINE)) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["howto", "changing-rows", "maintenance"])
def test_pages_print_the_documented_output(tmp_path: Path, name: str) -> None:
    source, expected = python_of(f"{name}.md")
    (tmp_path / "page.py").write_text(source)
    result = run(["page.py"], tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == expected


def test_the_transaction_of_the_commit_protocol_runs(uri: str) -> None:
    table = deltic.Table(uri)
    first, second = date(2026, 3, 1), date(2026, 3, 2)
    deltic.write(table, pa.table({"day": [first, second], "n": [1, 2]}), partition_by=["day"])
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "commit-protocol.md").read_text(), re.DOTALL)
    known: dict[str, Any] = {"table": table}
    known["corrected"] = lambda rows: rows.to_arrow().set_column(1, "n", pa.array([10]))
    exec(block, known)
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [2, 10]
    exec(block, known)
    assert known["tx"].replayed
    assert table.snapshot().version == 1


FLIGHTS = pa.table({"month": [7, 7, 8], "carrier": ["UA", "B6", "UA"], "distance": [2475, 1074, 2565]})


@pytest.mark.slow
def test_the_commands_of_the_howto_run(tmp_path: Path) -> None:
    deltic.write(tmp_path / "flights", FLIGHTS, partition_by=["month"])
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "howto.md").read_text(), re.DOTALL)
    for line in block.splitlines():
        command, *arguments = shlex.split(line)
        assert command == "deltic"
        result = run(["-m", "deltic", *arguments], tmp_path)
        assert result.returncode == 0, result.stderr
        assert result.stdout


def constant(program: Path, name: str) -> Any:
    """The value of a constant in a program, without running it: the demo needs Spark and a data set."""
    for node in ast.parse(program.read_text()).body:
        if isinstance(node, ast.Assign) and name in [ast.unparse(target) for target in node.targets]:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{program} has no {name}")


@pytest.mark.slow
def test_the_commands_that_the_demo_recommends_run(root: Path, tmp_path: Path) -> None:
    for version in range(4):
        deltic.write(tmp_path / "flights", FLIGHTS.slice(version % 3, 1), partition_by=["month"])
    commands = constant(root / "examples" / "flights.py", "NEXT")
    printed = {}
    for command in commands:
        name, *arguments = shlex.split(command.format(table="flights"))
        result = run(["-m", "deltic", name, *arguments], tmp_path)
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        assert result.stdout, command
        printed[name] = result.stdout
    assert "month=7/" in printed["files"]
    assert "month=8/" not in printed["files"]


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_within_a_page_have_their_heading(root: Path) -> None:
    for path in [root / "README.md", *(root / "docs").rglob("*.md")]:
        page = path.read_text()
        for anchor in re.findall(r"\]\(#([^)]+)\)", page):
            assert anchor in anchors(page), f"{path.name}: #{anchor}"


def test_the_readme_names_files_that_exist(root: Path) -> None:
    for page in [root / "README.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} names {target}"


def test_generated_parts_are_current(root: Path) -> None:
    location = importlib.util.spec_from_file_location("generate", root / "docs" / "generate.py")
    assert location is not None
    assert location.loader is not None
    generate = importlib.util.module_from_spec(location)
    location.loader.exec_module(generate)
    for name, make in generate.GENERATED.items():
        text = (root / "docs" / name).read_text()
        assert generate.with_generated(text, make()) == text, f"docs/{name} is stale: run `make docs`"


def named_modules(root: Path, *crates: str) -> set[str]:
    """The modules in the first column of the table of some crates in the architecture."""
    text = (root / "docs" / "architecture.md").read_text()
    heading = ", ".join(f"`rust/{crate}/src/`" for crate in crates)
    (table,) = re.findall(rf"^\| {heading} \| \|\n\|---\|---\|\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    cells = [line.split(" | ")[0] for line in table.splitlines()]
    return {name.rstrip("/") for cell in cells for name in re.findall(r"`([a-z_/]+)`", cell)}


def modules_of(root: Path, crate: str) -> set[str]:
    return {path.stem for path in (root / "rust" / crate / "src").iterdir()} - {"lib"}


@pytest.mark.parametrize("crate", ["protocol", "table"])
def test_the_architecture_names_every_module(root: Path, crate: str) -> None:
    assert named_modules(root, crate) == modules_of(root, crate)


def test_the_architecture_names_modules_that_exist(root: Path) -> None:
    assert named_modules(root, "store", "pages") <= modules_of(root, "store") | modules_of(root, "pages")


def test_the_errors_page_names_every_class(root: Path) -> None:
    text = (root / "docs" / "errors.md").read_text()
    for name in deltic.__all__:
        if name.endswith("Error"):
            assert f"`{name}`" in text
