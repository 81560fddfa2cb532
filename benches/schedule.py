"""The order of cases, estimates of their durations, and the runs of peers that a budget leaves out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import built
import kept
import tables
import work_tables
from case import ENGINES, Case
from cases import CASES
from turns import SLOW, SLOWISH, fits, is_peer

# Estimated seconds of a run that was never timed: start and preparation, a million files, each of many commits.
START = 0.8
OF_A_MILLION = {"deltic": 0.8, "deltalake": 6.0, "duckdb": 2.5, "sql": 1.0, "plain": 30.0, "floor": 1.0}
OF_A_COMMIT = {"deltic": 0.006, "deltalake": 0.05, "floor": 0.002}
OF_ROWS = 6.0
# The plain replay answers all questions about a table in one run.
ANSWERS_OF_A_MILLION, BUILDING_A_MILLION = 60.0, 45.0
LARGE, LARGEST = "1m", "5m"
LEAST_IMPORTANT = 3


@dataclass(frozen=True)
class Task:
    """A case on one table, with its engines and the number of runs of each."""

    case: Case
    table: str
    wanted: tuple[tuple[str, int], ...]

    def importance(self) -> int:
        return importance(self.case, self.table)


def importance(case: Case, table: str) -> int:
    """0 for cases and tables of targets, more for the points of curves, most for the largest tables."""
    size = table.rpartition("_")[2]
    is_target = case.target is not None
    if is_target and (not case.sized or size == LARGE):
        return 0
    if is_target and size != LARGEST:
        return 1
    return LEAST_IMPORTANT if size == LARGEST else 2


def runs_wanted(case: Case, table: str, engine: str, times: int) -> int:
    """The number of runs without a budget: the full number for deltic, and for peers of a target."""
    files = tables.files(table)
    if case.once:
        return 1
    if engine == "deltic":
        return min(times, 3) if files > 1_000_000 else times
    if is_peer(engine) and (case.once_within is not None or files > 1_000_000):
        return 1
    if engine == "plain" and files >= 100_000:
        return 1
    return times if is_peer(engine) and importance(case, table) == 0 else min(times, 3)


def tasks(
    cases: list[Case], engines: list[str], sizes: list[str], times: int, *, scale: float, quick: bool
) -> list[Task]:
    """All tasks, unordered. `scale` is that of the tables of `work_tables`."""
    found = []
    for case in cases:
        names = [f"{case.table}_{size}" for size in sizes if size in case.sizes]
        if not case.sized:
            whole = work_tables.scaled(case.table, scale) if case.family else case.table
            names = [case.quick_table if quick else whole]
        for name in names:
            wanted = [
                (engine, runs_wanted(case, name, engine, times)) for engine in engines if fits(engine, case, name)
            ]
            if wanted:
                found.append(Task(case, name, tuple(wanted)))
    return found


class Clock:
    """Estimates of durations from those of earlier runs."""

    def __init__(self, durations: kept.Durations, answers: kept.Answers, limit: float) -> None:
        self.durations, self.answers, self.limit = durations, answers, limit

    def one(self, task: Task, engine: str) -> float:
        """Seconds of one run."""
        known = self.durations.get(task.case, task.table, engine)
        if known is not None:
            return known
        millions = tables.files(task.table) / 1e6
        if task.case.minutes:
            share = task.case.minutes * 60 / sum(runs + 1 for _, runs in task.wanted)
            return max(START, share * work_tables.scale_of(task.table))
        guess = START + OF_A_MILLION[engine] * millions + OF_A_COMMIT.get(engine, 0) * task.case.count
        if not millions and not task.case.unit:
            guess += OF_ROWS
        return min(guess, max(self.limit, task.case.once_within or 0)) if is_peer(engine) else guess

    def of(self, task: Task, engine: str, runs: int, *, warm_up: bool) -> float:
        """Seconds of all runs of an engine."""
        one = self.one(task, engine)
        warm_up = warm_up and not task.case.once
        if is_peer(engine):
            runs = 1 if one > SLOW else min(runs, 3) if one > SLOWISH else runs
            warm_up = warm_up and runs > 1
        return one * (runs + warm_up)

    def before(self, task: Task) -> float:
        """Seconds to build the table and to compute the right answer."""
        seconds = 0.0
        millions = tables.files(task.table) / 1e6
        if not (built.FOLDER / f"{task.table}.built").exists():
            seconds += BUILDING_A_MILLION * millions
        source = kept.answers_table(task.table)
        if task.case.oracle is None:
            return seconds
        if not (built.FOLDER / f"{source}.built").exists():
            return seconds + (BUILDING_A_MILLION * (source != task.table) + ANSWERS_OF_A_MILLION) * millions
        return seconds + (0 if self.answers.get(task.case, task.table) else ANSWERS_OF_A_MILLION * millions)


# Returns a peer's earlier result, if there is one.
Known = Callable[[Task, str], Any]
# The number of runs by case, table and engine.
Runs = dict[tuple[str, str, str], int]


def in_order(found: list[Task], clock: Clock) -> list[Task]:
    """The most important tasks first, then the cheapest."""

    def place(task: Task) -> tuple[int, float]:
        return task.importance(), sum(clock.of(task, engine, runs, warm_up=True) for engine, runs in task.wanted)

    return sorted(found, key=place)


def allot(
    left: list[Task], clock: Clock, budget: float | None, kept_of: Known, known_of: Known, warm_up: bool
) -> tuple[Runs, list[float]]:
    """The number of runs by case, table and engine, and the estimated seconds of each task.

    If the total exceeds the budget, peers run once, or on the largest tables not at all if an earlier result is known:
    the least important tasks first, and among them the slowest, until the total fits. deltic and the floor keep all of
    their runs, and no case is left out, so the total may still exceed the budget.
    """
    runs: Runs = {}
    savings: list[tuple[int, float, int, int, tuple[str, str, str]]] = []
    took, prepared = [0.0] * len(left), set()
    for place, task in enumerate(left):
        source = (task.table, task.case.oracle is None)
        if source not in prepared:
            prepared.add(source)
            took[place] += clock.before(task)
        for engine, wanted in task.wanted:
            key = (task.case.name, task.table, engine)
            runs[key] = wanted
            if kept_of(task, engine):
                continue
            seconds = clock.of(task, engine, wanted, warm_up=warm_up)
            took[place] += seconds
            if is_peer(engine):
                least = 0 if task.importance() == LEAST_IMPORTANT and known_of(task, engine) else 1
                saved = seconds - (clock.of(task, engine, 1, warm_up=warm_up) if least else 0)
                savings.append((task.importance(), saved, place, least, key))
    for _, saved, place, least, key in sorted(savings, reverse=True):
        if budget is None or sum(took) <= budget:
            break
        if saved <= 0:
            continue
        runs[key] = least
        took[place] -= saved
    return runs, took


def unknown(names: list[str], allowed: list[str]) -> list[str]:
    return [name for name in names if name not in allowed]


def chosen(only: str) -> list[Case]:
    """The cases whose names contain one of the given parts."""
    return [case for case in CASES if any(part in case.name for part in only.split(","))]


def engines_of(text: str) -> list[str]:
    names = text.split(",")
    if strangers := unknown(names, list(ENGINES)):
        raise SystemExit(f"unknown engines: {', '.join(strangers)}")
    return names
