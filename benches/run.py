"""The benchmark harness: `make bench`, `make bench-quick`.

Every run is a process of its own; engines take turns, round by round. What an engine answers is compared with the plain
replay, and a wrong answer fails the bench. Results are kept beside the tables and dropped when deltic is built anew;
benches/README.md is written when all cases have been measured with the same build.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES / "python")]

import report  # noqa: E402
import tables  # noqa: E402
from cases import CASES, ENGINES, Case  # noqa: E402
from job import COMPARED, Job  # noqa: E402

KEPT = tables.FOLDER / "results.json"
LIMIT_OF_THE_ORACLE = 600
Outcome = dict[str, Any]


# --- one run, in a process of its own ---


def memory(field: str) -> int:
    """Bytes of this process now (`VmRSS`) or at most (`VmHWM`)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    import resource  # elsewhere only the peak is known

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(case_name: str, engine: str, table_name: str) -> None:
    """Run one case once, in this process, and print what it took as JSON."""
    case = next(case for case in CASES if case.name == case_name)
    module = import_module(ENGINES[engine][0])
    base = memory("VmRSS")
    with tempfile.TemporaryDirectory(dir=tables.FOLDER) as scratch:
        uri = str(tables.FOLDER / table_name)
        steps = getattr(module, case.does)(
            Job(uri, tables.files(table_name), Path(scratch), by_day=case.by_day, typed=case.typed)
        )
        next(steps)
        started = time.perf_counter()
        answer = next(steps)
        seconds = time.perf_counter() - started
        peak, retained = memory("VmHWM"), memory("VmRSS")
        if answer is None:
            answer = next(steps)
        steps.close()
    print(json.dumps({"seconds": seconds, "peak": peak - base, "retained": retained - base, "answer": answer}))


def run(case_name: str, engine: str, table_name: str, limit: float) -> Outcome:
    """Run one case once in a new process; `{"over": limit}` when it takes longer."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", case_name, engine, table_name]
    try:
        finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"over": limit}
    if finished.returncode:
        return {"error": "…" + finished.stderr.strip()[-600:]}
    return dict(json.loads(finished.stdout.splitlines()[-1]))


# --- a case: engines in turn ---


def does(engine: str, case: Case) -> bool:
    """Whether an engine has this case. Read from its text, for importing engines here would cost memory in each run."""
    return f"\ndef {case.does}(" in (BENCHES / "python" / f"{ENGINES[engine][0]}.py").read_text()


def fits(engine: str, case: Case) -> bool:
    # Plain SQL knows nothing of deletion vectors or sidecars.
    return does(engine, case) and not (engine == "sql" and case.table in ("vectors", "sidecars"))


def rounds(case: Case, engine: str, table_name: str, times: int, warm_up: bool) -> range:
    """The rounds that an engine takes part in; round 0 warms up. What is slow and not the rival runs once."""
    files = tables.files(table_name)
    if case.once_within is not None and engine != "deltic":
        return range(1, 2)
    if (files > 1_000_000 and engine != "deltic") or (files >= 1_000_000 and engine == "plain"):
        return range(1, 2)
    return range(0 if warm_up else 1, times + 1)


def expected(case: Case, table_name: str, results: dict[str, Outcome]) -> Outcome | None:
    """What the plain replay answers."""
    if case.oracle is None:
        return next((result["answer"] for result in results.values() if "answer" in result), None)
    if case.oracle == case.does and "answer" in results.get("plain", {}):
        return dict(results["plain"]["answer"])
    question = (case.oracle, case.by_day, case.typed)
    asked = next(other for other in CASES if (other.does, other.by_day, other.typed) == question)
    outcome = run(asked.name, "plain", table_name, LIMIT_OF_THE_ORACLE)
    if "answer" not in outcome:
        raise SystemExit(f"{case.name}, {table_name}: the plain replay gave no answer: {outcome}")
    return dict(outcome["answer"])


def compare(case: Case, table_name: str, results: dict[str, Outcome]) -> None:
    """Stop the bench for a wrong answer."""
    right = expected(case, table_name, results)
    for engine, result in results.items():
        given = result.get("answer")
        if given is None or right is None:
            continue
        wrong = {
            name: (given[name], right[name]) for name in COMPARED if name in given and given[name] != right.get(name)
        }
        if wrong:
            raise SystemExit(f"{case.name}, {table_name}: {engine} is wrong, (given, expected): {wrong}")


def take_turns(
    case: Case, table_name: str, engines: list[str], times: int, limit: float, warm_up: bool
) -> dict[str, Outcome]:
    """Run a case by all engines, round by round."""
    results: dict[str, Outcome] = {engine: {"runs": [], "peak": 0, "retained": []} for engine in engines}
    for place in range(times + 1):
        for engine, result in results.items():
            if place not in rounds(case, engine, table_name, times, warm_up) or "over" in result or "error" in result:
                continue
            report.progress(f"{case.name}, {table_name}: round {place} of {times}, {engine}")
            outcome = run(case.name, engine, table_name, max(limit, case.once_within or 0))
            if "answer" not in outcome:
                result.update(outcome)
                continue
            same = result.setdefault("answer", outcome["answer"])
            if any(same.get(name) != outcome["answer"].get(name) for name in COMPARED):
                raise SystemExit(f"{case.name}, {table_name}: {engine} answers differently each time")
            if place:
                add_run(case, result, outcome)
    compare(case, table_name, results)
    return results


def add_run(case: Case, result: Outcome, outcome: Outcome) -> None:
    """Count a run after the warm-up."""
    result["runs"].append(outcome["seconds"])
    result["retained"].append(outcome["retained"])
    result["peak"] = max(result["peak"], outcome["peak"])
    done = outcome["answer"].get("done", case.count)
    result.setdefault("rates", []).append(done / outcome["seconds"])
    result["failed"] = result.get("failed", 0) + outcome["answer"].get("failed", 0)
    for name in report.MICROSECONDS:
        if name in outcome["answer"]:
            result.setdefault(name, []).append(outcome["answer"][name])


def build_of_deltic() -> str:
    import deltic._deltic

    return hashlib.sha256(Path(deltic._deltic.__file__).read_bytes()).hexdigest()


def recipe(case: Case) -> str:
    """What a kept result depends on besides the build of deltic."""
    modules = [module for module, _, _ in ENGINES.values()]
    texts = [(BENCHES / "python" / f"{name}.py").read_bytes() for name in (*modules, "job", "plain", "writers")]
    texts += [repr(case).encode(), (BENCHES / "logs.py").read_bytes(), (BENCHES / "tables.py").read_bytes()]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def kept_results(build: str) -> dict[str, Any]:
    """Results of this build so far."""
    if KEPT.exists():
        kept = json.loads(KEPT.read_text())
        if kept.get("build") == build:
            return dict(kept)
    return {"build": build, "cases": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 files, two runs without warm-up, nothing written")
    parser.add_argument("--only", default="", help="cases whose name contains one of these, by commas")
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines, by commas: %(default)s")
    parser.add_argument("--sizes", default=",".join(tables.SIZES), help="sizes, by commas: %(default)s")
    parser.add_argument("--runs", type=int, help="runs after the warm-up")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run of a peer is cut off")
    parser.add_argument("--again", action="store_true", help="measure anew what was measured with this build")
    parser.add_argument("--write", action="store_true", help="write README.md and plots from what was measured so far")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(*arguments.one)
        return
    tables.FOLDER.mkdir(exist_ok=True)
    results = {"build": "", "cases": {}} if arguments.quick else kept_results(build_of_deltic())
    if not arguments.write:
        measure_all(arguments, results)
    print(report.page(results, quick=arguments.quick))
    everything = not arguments.quick and all(case.name in results["cases"] for case in CASES)
    if arguments.write or (everything and not arguments.only):
        report.write(BENCHES, results)
    failed = [
        f"{name} of {table}"
        for name, measured in results["cases"].items()
        for table, outcome in measured.items()
        if "error" in outcome["engines"].get("deltic", {})
    ]
    if failed:
        raise SystemExit(f"deltic failed in {', '.join(failed)}")


def measure_all(arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    started = time.monotonic()
    times = arguments.runs or (2 if arguments.quick else 5)
    engines = arguments.engines.split(",")
    if unknown := set(engines) - set(ENGINES):
        raise SystemExit(f"unknown engines: {', '.join(sorted(unknown))}")
    wanted = [case for case in CASES if any(part in case.name for part in arguments.only.split(","))]
    for case in wanted:
        sizes = ["100k"] if arguments.quick else arguments.sizes.split(",")
        names = [f"{case.table}_{size}" for size in sizes if size in case.sizes]
        if not case.sized:
            names = [case.quick_table if arguments.quick else case.table]
        measured = results["cases"].setdefault(case.name, {})
        for name in names:
            taking_part = [engine for engine in engines if fits(engine, case)]
            made_by = [recipe(case), times]
            kept = measured.get(name, {})
            if not arguments.again and kept.get("made_by") == made_by and set(taking_part) <= set(kept["engines"]):
                continue
            try:
                report.progress(f"{case.name}: building {name}")
                tables.table(name)
            except tables.UnavailableError as reason:
                measured[name] = {"unavailable": str(reason), "engines": {}}
                report.say(f"{case.name}, {name}: {reason}")
                continue
            by_engine = take_turns(case, name, taking_part, times, arguments.limit, not arguments.quick)
            measured[name] = {"made_by": made_by, "engines": by_engine}
            report.say(f"[{time.monotonic() - started:5.0f} s] {report.line(case, name, by_engine)}")
            if not arguments.quick:
                KEPT.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
