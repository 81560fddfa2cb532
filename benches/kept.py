"""Files kept next to the tables between runs of the harness, and what each of them depends on.

- `results.json`: results of one build of deltic, so that a stopped run can be continued.
- `answers.json`: the answers of the plain replay, for each table and question. They do not depend on deltic.
- `peers.json`: the last result of each peer, case and table. They are reused only on request, except those of the plain
  replay (which takes minutes, and has no target) and of a peer that was cut off.
- `layouts.json`: how a build of deltic writes sidecars.
- `durations.json`: the duration of the last run, for estimates.
"""

import functools
import hashlib
import json
import platform
import subprocess
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import built
import pyarrow.parquet as pq
import tables
from case import ENGINES, Case
from cases import CASES

ENGINES_FOLDER = Path(__file__).resolve().parent / "python"
# The table whose sidecars identify how a build writes them.
PROBE = "sidecars_100k"
Outcome = dict[str, Any]


class File:
    """A JSON object in a file, replaced as a whole."""

    def __init__(self, name: str) -> None:
        self.path = built.FOLDER / name
        self.content: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def write(self) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.content))
        draft.replace(self.path)


# --- dependencies ---


def build_of_deltic() -> str:
    import deltic._deltic

    return hashlib.sha256(Path(deltic._deltic.__file__).read_bytes()).hexdigest()


def commit() -> str:
    """The checked-out commit, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty=, with changes", "--exclude=*", "--abbrev=12"]
    try:
        found = subprocess.run(command, cwd=ENGINES_FOLDER, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


@functools.cache
def versions(engine: str) -> dict[str, str]:
    """Versions of the packages that an engine's result depends on."""
    found = {"python": platform.python_version()}
    packages = {ENGINES[engine][1], "pyarrow"} | ({"duckdb"} if engine == "duckdb" else set())
    for package in sorted(packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


@functools.cache
def texts(*modules: str) -> str:
    """A digest of modules in the engines' folder."""
    return hashlib.sha256(b"".join((ENGINES_FOLDER / f"{name}.py").read_bytes() for name in modules)).hexdigest()


def modules_of(case: Case, *engines: str) -> list[str]:
    """The modules that the results of engines for a case depend on."""
    with_case = [case.module(engine) for engine in engines]
    shared = ["work_job", "work_spark", "work_store"] if case.family else ["writers"]
    return [name for name in with_case if (ENGINES_FOLDER / f"{name}.py").exists()] + ["job", "plain", *shared]


def definition_of(case: Case) -> str:
    """A case without its title, target and expected duration, on which results do not depend."""
    return repr(replace(case, title="", target=None, minutes=0))


def written_by(name: str) -> Path:
    """The file with the layout of a table that deltic writes."""
    return built.FOLDER / f"{name}.layout"


def fingerprint(name: str) -> str:
    """The recipe of a table, and its layout if deltic wrote it."""
    by = written_by(name)
    return (built.FOLDER / f"{name}.built").read_text() + (by.read_text() if by.exists() else "")


def recipe(case: Case, name: str) -> str:
    """Everything that a result depends on besides the build of deltic."""
    modules = texts(*modules_of(case, *ENGINES))
    return hashlib.sha256((modules + definition_of(case) + fingerprint(name)).encode()).hexdigest()


def layout(build: str) -> str:
    """A digest of the sidecars that a build writes for one table. Other tables are kept while it is the same."""
    known = File("layouts.json")
    if build not in known.content:
        (built.FOLDER / f"{PROBE}.built").unlink(missing_ok=True)
        log = Path(tables.table(PROBE), "_delta_log")
        written = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in log.glob("_sidecars/*.parquet"))
        # Only the tags of the checkpoint, since the names of sidecars are random.
        for path in log.glob("*.checkpoint.*.parquet"):
            sidecars = pq.read_table(path, columns=["sidecar"])["sidecar"].drop_null().to_pylist()
            written += sorted(repr(sidecar["tags"]) for sidecar in sidecars)
        known.content = {build: hashlib.sha256(" ".join(written).encode()).hexdigest()}
        known.write()
    return str(known.content[build])


def is_built(name: str, build: str) -> bool:
    """Whether a table exists, with the layout of this build."""
    if not (built.FOLDER / f"{name}.built").exists():
        return False
    if not name.startswith("sidecars"):
        return True
    by, known = written_by(name), File("layouts.json").content
    return build in known and by.exists() and by.read_text() == known[build]


def table(name: str, build: str) -> None:
    """Build a table if needed, and again if its sidecars have the layout of another build."""
    if not name.startswith("sidecars"):
        tables.table(name)
        return
    by = written_by(name)
    if not by.exists() or by.read_text() != layout(build):
        if name != PROBE:
            (built.FOLDER / f"{name}.built").unlink(missing_ok=True)
        by.unlink(missing_ok=True)
    tables.table(name)
    by.write_text(layout(build))


# --- answers ---


def answers_table(name: str) -> str:
    """The table whose plain replay has the answers for a table: one with sidecars has the files of the classic one."""
    return name.replace("sidecars", "json")


def question(case: Case) -> tuple[str, bool, bool]:
    """The function of the plain replay that answers a case, and its arguments."""
    assert case.oracle is not None
    return case.oracle, case.by_day, case.typed


class Answers:
    """The answers of the plain replay, by table and question."""

    def __init__(self) -> None:
        self.file = File("answers.json")
        self.by = texts("by_plain", "plain", "job")

    def _of(self, name: str) -> dict[str, Any]:
        made = {"table": fingerprint(name), "by": self.by}
        found = self.file.content.get(name)
        if found is None or found["made"] != made:
            found = self.file.content[name] = {"made": made, "answers": {}}
        return dict(found["answers"])

    def get(self, case: Case, name: str) -> Outcome | None:
        return self._of(answers_table(name)).get(str(question(case)))

    def open_questions(self, name: str) -> list[Case]:
        """One case for each question about a table that is not answered yet."""
        known = self._of(name)
        found = {
            str(question(case)): case
            for case in CASES
            if case.oracle is not None and str(question(case)) not in known and _is_about(case, name)
        }
        return list(found.values())

    def add(self, name: str, answers: dict[str, Outcome]) -> None:
        self._of(name)
        self.file.content[name]["answers"].update(answers)
        self.file.write()


def _is_about(case: Case, name: str) -> bool:
    if not case.sized:
        return name == case.table
    kind, _, size = name.rpartition("_")
    return kind == answers_table(case.table) and size in case.sizes


# --- peers and durations ---


class Peers:
    """The last result of each peer by case and table, with its dependencies."""

    def __init__(self, machine: str) -> None:
        self.file = File("peers.json")
        self.machine = machine

    def _made(self, case: Case, name: str, engine: str, times: int, limit: float) -> dict[str, Any]:
        return {
            "table": fingerprint(name),
            "case": definition_of(case),
            "engine": texts(*modules_of(case, engine)),
            "versions": versions(engine),
            "machine": self.machine,
            "times": times,
            "limit": limit,
        }

    def get(self, case: Case, name: str, engine: str, times: int, limit: float) -> Outcome | None:
        """An earlier result with the mark `kept`, if its dependencies are the same."""
        found = self.file.content.get(f"{case.name}|{name}|{engine}")
        if found is None or found["made"] != self._made(case, name, engine, times, limit):
            return None
        return {**found["outcome"], "kept": True}

    def add(self, case: Case, name: str, engine: str, times: int, limit: float, outcome: Outcome) -> None:
        if "error" in outcome or outcome.get("kept"):
            return
        made = self._made(case, name, engine, times, limit)
        self.file.content[f"{case.name}|{name}|{engine}"] = {"made": made, "outcome": outcome}


class Durations:
    """Seconds of one run including preparation, by case, table and engine."""

    def __init__(self) -> None:
        self.file = File("durations.json")

    def get(self, case: Case, name: str, engine: str) -> float | None:
        return self.file.content.get(f"{case.name}|{name}|{engine}")

    def add(self, case: Case, name: str, engine: str, seconds: float) -> None:
        """Record a run. If it took longer than the last, perhaps on a busy machine, the mean is recorded."""
        key = f"{case.name}|{name}|{engine}"
        known = self.file.content.get(key, seconds)
        self.file.content[key] = round(min(seconds, (known + seconds) / 2), 2)
