"""Running one case: each run in a separate process, engines in turn round by round, every answer compared."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import built
import kept
import report
import tables
from case import ENGINES, OWN, Case
from cases import CASES
from cells import MICROSECONDS
from job import COMPARED, Job
from work_job import RIGHT, UNCOUNTED

RUN = Path(__file__).resolve().parent / "run.py"
LIMIT_OF_THE_ORACLE = 3_600
# Seconds after which deltic is assumed to hang. It is not cut off like a peer.
LIMIT_OF_DELTIC = 900
# A peer whose first run takes longer than the first number of seconds runs once, one that takes longer than the second
# runs three times.
SLOW, SLOWISH = 20.0, 4.0
# A process is at rest if its memory has not fallen for so many seconds (idle threads end after ten); the longest wait
# for that; a smaller decrease than this many bytes does not count.
REST, LONGEST_REST, STEP = 15.0, 60.0, 1024 * 1024
# The argument of a run that must answer.
ASKED = "asked"
# The folder that runs write to, and the bytes and files of a run that may stay until the end.
SCRATCH, KEPT, MOST_KEPT = built.FOLDER / "scratch", 8 * 1024 * 1024, 2_000
Outcome = dict[str, Any]


# --- one run, in a separate process ---


def memory(field: str) -> int:
    """The memory of this process in bytes, current (`VmRSS`) or peak (`VmHWM`)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    import resource  # without /proc only the peak is known

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_the_peak() -> int:
    """Reset the peak after the preparation of a run; return the current memory in bytes."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    return memory("VmRSS")


def memory_of_descendants() -> int:
    """The sum of the memory peaks of all running descendants, such as a JVM."""
    peaks, parents = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            found = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # the process has ended
            continue
        number = int(status.parent.name)
        peaks[number], parents[number] = int(found.get("VmHWM", "0").split()[0]) * 1024, int(found["PPid"])
    total, left = 0, [os.getpid()]
    while left:
        children = [number for number, parent in parents.items() if parent == left[-1] and number not in UNCOUNTED]
        left[-1:] = children
        total += sum(peaks[number] for number in children)
    return total


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run.

    Small folders stay until the benchmark ends. A file system without a journal searches recently deleted entries
    whenever it creates a file, so later runs would pay for the deletes of earlier ones.
    """
    SCRATCH.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        yield folder
    finally:
        files = [path.stat() for path in folder.rglob("*") if path.is_file()]
        if len(files) > MOST_KEPT or sum(file.st_size for file in files if file.st_nlink == 1) > KEPT:
            shutil.rmtree(folder)


def clear() -> None:
    """Delete the folders of all runs."""
    shutil.rmtree(SCRATCH, ignore_errors=True)


def job(case: Case, table_name: str, folder: Path) -> Job:
    uri = str(built.FOLDER / table_name)
    return Job(uri, tables.files(table_name), folder, by_day=case.by_day, typed=case.typed)


def measure(case_name: str, engine: str, table_name: str, mode: str) -> None:
    """Run one case once in this process, and print its time, memory and answer as JSON."""
    case = next(case for case in CASES if case.name == case_name)
    module = import_module(case.module(engine))
    base = memory("VmRSS")
    with scratch() as folder:
        steps = getattr(module, case.does)(replace(job(case, table_name, folder), is_asked=mode == ASKED))
        next(steps)
        base = forget_the_peak() if case.family else base
        started = time.perf_counter()
        answer = next(steps)
        seconds = time.perf_counter() - started
        others = memory_of_descendants() if case.family else 0
        peak, retained = memory("VmHWM"), at_rest() if case.target and case.target.retained else memory("VmRSS")
        stopped = time.perf_counter()
        if answer is None:
            answer = next(steps)
        asking = time.perf_counter() - stopped
        steps.close()
    memories = {"peak": peak - base + others, "retained": retained - base}
    print(json.dumps({"seconds": seconds, **memories, "answer": answer, "asking": asking}))


def at_rest() -> int:
    """The memory of the process after it has released what it does not need, when it no longer falls."""
    least, since, started = memory("VmRSS"), time.monotonic(), time.monotonic()
    while time.monotonic() < min(since + REST, started + LONGEST_REST):
        time.sleep(0.1)
        now = memory("VmRSS")
        if now < least - STEP:
            least, since = now, time.monotonic()
    return memory("VmRSS")


def answer_all(table_name: str) -> None:
    """Answer all open questions about a table by the plain replay in this process; print the answers as JSON."""
    module = import_module(ENGINES["plain"][0])
    answers = {}
    for case in kept.Answers().open_questions(table_name):
        with scratch() as folder:
            steps = getattr(module, case.oracle or "")(job(case, table_name, folder))
            answers[str(kept.question(case))] = [answer for answer in steps if answer is not None][-1]
    print(json.dumps(answers))


def child(limit: float, *arguments: str) -> Outcome:
    """Start `run.py` in a separate process and parse its last line; `{"over": limit}` if it takes longer."""
    command = [sys.executable, "-W", "ignore", str(RUN), *arguments]
    # Importing numpy starts threads for linear algebra, which spin for 20 ms and would distort measurements on machines
    # with few processors.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"over": limit}
    if finished.returncode:
        return {"error": "…" + finished.stderr.strip()[-600:]}
    return dict(json.loads(finished.stdout.splitlines()[-1]))


# --- a case: engines in turn ---


def fits(engine: str, case: Case, table_name: str) -> bool:
    """Whether an engine implements this case. Searched in its source, since imports here would cost each run memory."""
    kind, _, size = table_name.rpartition("_")
    module = kept.ENGINES_FOLDER / f"{case.module(engine)}.py"
    if not module.exists() or f"\ndef {case.does}(" not in module.read_text():
        return False
    # Plain SQL does not support deletion vectors or sidecars. Others would read sidecars that bounds exclude.
    unread = {"sql": ("vectors", "sidecars"), "plain": ("sidecars",), "floor": ("sidecars",)}
    # The plain replay would exceed the limit on the largest tables.
    too_large_for = (*case.too_large_for, "plain")
    return kind not in unread.get(engine, ()) and not (size == "5m" and engine in too_large_for)


def expected(case: Case, table_name: str, results: dict[str, Outcome], answers: kept.Answers) -> Outcome | None:
    """The expected answer: computed from the recipe of the rows, or from the plain replay, or from the first engine."""
    if case.family:
        return RIGHT[case.does](job(case, table_name, built.FOLDER))
    if case.oracle is None:
        return next((result["answer"] for result in results.values() if "answer" in result), None)
    source = kept.answers_table(table_name)
    tables.table(source)
    if answers.get(case, table_name) is None:
        report.progress(f"{source}: the plain replay answers")
        given = child(LIMIT_OF_THE_ORACLE, "--answer", source)
        if "over" in given or "error" in given:
            raise SystemExit(f"{case.name}, {source}: the plain replay gave no answer: {given}")
        answers.add(source, given)
    right = answers.get(case, table_name)
    assert right is not None
    return right


def compare(case: Case, table_name: str, results: dict[str, Outcome], answers: kept.Answers) -> None:
    """Stop the benchmark on a wrong answer."""
    right = expected(case, table_name, results, answers)
    for engine, result in results.items():
        given = result.get("answer")
        if given is None or right is None:
            continue
        wrong = {
            name: (given[name], right[name]) for name in COMPARED if name in given and given[name] != right.get(name)
        }
        if wrong:
            raise SystemExit(f"{case.name}, {table_name}: {engine} is wrong, (given, expected): {wrong}")


def is_peer(engine: str) -> bool:
    """Whether an engine may run less often than requested."""
    return engine not in OWN


def take_turns(
    case: Case, table_name: str, allotted: dict[str, int], limit: float, warm_up: bool, durations: kept.Durations
) -> dict[str, Outcome]:
    """Run a case by all engines, round by round, each as often as allotted. Round 0 is the warm-up."""
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    results: dict[str, Outcome] = {
        engine: {"runs": [], "peak": 0, "retained": [], "when": started} for engine in allotted
    }
    left = dict(allotted)
    for place in range(0 if warm_up and not case.once else 1, max(allotted.values(), default=0) + 1):
        for engine, result in results.items():
            alone = is_peer(engine) and allotted[engine] == 1
            if place > left[engine] or "over" in result or "error" in result or (alone and place == 0):
                continue
            report.progress(f"{case.name}, {table_name}: round {place} of {left[engine]}, {engine}")
            began = time.monotonic()
            cut_off = max(limit, case.once_within or 0, case.cut_off) if is_peer(engine) else LIMIT_OF_DELTIC
            # On the largest tables an answer would take minutes.
            mode = "not asked" if "answer" in result or table_name.endswith("_5m") else ASKED
            outcome = child(cut_off, "--one", case.name, engine, table_name, mode)
            took = time.monotonic() - began - outcome.get("asking", 0)
            durations.add(case, table_name, engine, took)
            if "answer" not in outcome:
                result.update(outcome)
                continue
            same, given = result.setdefault("answer", outcome["answer"]), outcome["answer"]
            if any(same.get(name) != given[name] for name in COMPARED if name in given):
                raise SystemExit(f"{case.name}, {table_name}: {engine} answers differently each time")
            if is_peer(engine) and place <= 1:
                # Extra time for the start of a JVM, which is not measured.
                measured = outcome["seconds"] if case.family else took
                left[engine] = runs_after_the_first(left[engine], took, measured)
            if place or left[engine] == 0:
                add_run(case, result, outcome)
    return results


def runs_after_the_first(wanted: int, took: float, measured: float) -> int:
    """The number of a peer's runs after the warm-up, from the duration of the warm-up; 0 means that it counts as the
    result."""
    if measured > SLOW:
        return 0
    return min(wanted, 3) if took > SLOWISH else wanted


def add_run(case: Case, result: Outcome, outcome: Outcome) -> None:
    """Count a run after the warm-up."""
    result["runs"].append(outcome["seconds"])
    result["retained"].append(outcome["retained"])
    result["peak"] = max(result["peak"], outcome["peak"])
    done = outcome["answer"].get("done", case.count)
    result.setdefault("rates", []).append(done / outcome["seconds"])
    result["failed"] = result.get("failed", 0) + outcome["answer"].get("failed", 0)
    for name in MICROSECONDS:
        if name in outcome["answer"]:
            result.setdefault(name, []).append(outcome["answer"][name])
