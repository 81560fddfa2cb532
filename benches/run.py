"""The benchmark harness: `make bench`, `make bench-quick`.

Each run is a separate process, and engines take turns, round by round. Answers are compared with those of the plain
replay, and a wrong answer fails the benchmark. Results are kept next to the tables until deltic is built again.
benches/README.md is written when all cases have been measured with the same build.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES / "python")]

import built  # noqa: E402
import cells  # noqa: E402
import kept  # noqa: E402
import report  # noqa: E402
import schedule  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402
from case import ENGINES  # noqa: E402
from cases import CASES  # noqa: E402

Outcome = dict[str, Any]


class Bench:
    """One run of the harness: its arguments, and results of earlier runs."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.times: int = arguments.runs or (2 if arguments.quick else report.USUAL_RUNS)
        self.warm_up = not arguments.quick
        self.build = kept.build_of_deltic()
        self.answers, self.durations = kept.Answers(), kept.Durations()
        self.peers = kept.Peers(report.machine())
        self.clock = schedule.Clock(self.durations, self.answers, arguments.limit)
        self.results = kept.File("results.json")
        self.is_trial = arguments.quick or arguments.scale != 1
        if self.is_trial or self.results.content.get("build") != self.build:
            self.results.content = {"build": self.build, "commit": kept.commit(), "cases": {}}
        self.cases: dict[str, Any] = self.results.content["cases"]

    def known(self, task: schedule.Task, engine: str) -> Outcome | None:
        """A peer's earlier result, if it was measured under the same conditions."""
        if not turns.is_peer(engine) or self.is_trial or not kept.is_built(task.table, self.build):
            return None
        return self.peers.get(task.case, task.table, engine, dict(task.wanted)[engine], self.arguments.limit)

    def from_before(self, task: schedule.Task, engine: str) -> Outcome | None:
        """A peer's earlier result, if it replaces a new one independent of the time budget."""
        found = self.known(task, engine)
        if found is None or self.arguments.keep_peers:
            return found
        return found if not self.arguments.again and (engine == "plain" or "over" in found) else None

    def may_reuse(self, task: schedule.Task, engine: str) -> bool:
        """Whether an earlier result may be reused without --keep-peers."""
        return (
            engine == "plain"
            or task.importance() == schedule.LEAST_IMPORTANT
            or "over" in self.cases[task.case.name][task.table]["engines"][engine]
        )

    def is_done(self, task: schedule.Task) -> bool:
        """Whether this build was measured already, in turn with the same engines."""
        measured = self.cases.get(task.case.name, {}).get(task.table)
        if self.arguments.again or measured is None or not kept.is_built(task.table, self.build):
            return False
        engines = measured["engines"]
        reused = [engine for engine, _ in task.wanted if engines.get(engine, {}).get("kept")]
        return (
            measured.get("made_by") == [kept.recipe(task.case, task.table), self.times]
            and {engine for engine, _ in task.wanted} <= set(engines)
            and (self.arguments.keep_peers or all(self.may_reuse(task, engine) for engine in reused))
            and not any("error" in outcome for outcome in engines.values())
        )

    def measure_all(self) -> None:
        arguments, started = self.arguments, time.monotonic()
        # A quick run leaves out Spark: starting a JVM takes longer than all other engines together.
        known = [engine for engine in ENGINES if not (arguments.quick and ENGINES[engine][1] == "pyspark")]
        engines = schedule.engines_of(arguments.engines or ",".join(known))
        sizes = ["100k"] if arguments.quick else arguments.sizes.split(",")
        if strangers := schedule.unknown(sizes, list(tables.SIZES)):
            raise SystemExit(f"unknown sizes: {', '.join(strangers)}")
        cases = schedule.chosen(arguments.only)
        wanted = schedule.tasks(
            [case for case in cases if case.family or arguments.scale == 1],
            *(engines, sizes, self.times),
            scale=arguments.scale,
            quick=arguments.quick,
        )
        left = schedule.in_order([task for task in wanted if not self.is_done(task)], self.clock)
        if skipped := len(wanted) - len(left):
            report.say(f"{skipped} of {len(wanted)} are measured already with this build")
        if arguments.estimate:
            self.estimate(left)
            return
        is_new = True
        while left:
            spent = time.monotonic() - started
            runs, took = self.allot(left, spent)
            seconds = sum(took)
            if is_new and arguments.budget and seconds > arguments.budget * 60:
                report.say(f"more than the budget of {arguments.budget:g} min, though peers run as little as they can")
            is_new = False
            task = left.pop(0)
            report.say(
                f"[{spent:5.0f} s, about {seconds / 60:.0f} min left in {len(left) + 1} steps] "
                f"{task.case.name}, {task.table}"
            )
            self.measure(task, runs)

    def allot(self, left: list[schedule.Task], spent: float) -> tuple[schedule.Runs, list[float]]:
        """The runs of the remaining tasks and the seconds of each, after some of the budget is spent."""
        budget = self.arguments.budget * 60 - spent if self.arguments.budget else None
        return schedule.allot(left, self.clock, budget, self.from_before, self.known, self.warm_up)

    def estimate(self, left: list[schedule.Task]) -> None:
        """Print the order of the tasks, the number of runs, and the expected end of each."""
        runs, took = self.allot(left, 0)
        for place, task in enumerate(left):
            often = ", ".join(
                f"{engine} {0 if self.from_before(task, engine) else runs[task.case.name, task.table, engine]}"
                for engine, _ in task.wanted
            )
            report.say(f"[{sum(took[:place]):5.0f} s] {task.case.name}, {task.table}: {took[place]:.0f} s ({often})")
        report.say(f"about {sum(took) / 60:.0f} min in {len(left)} steps")

    def measure(self, task: schedule.Task, runs: dict[tuple[str, str, str], int]) -> None:
        """Measure a case on a table and keep the results."""
        case, name = task.case, task.table
        measured = self.cases.setdefault(case.name, {})
        try:
            report.progress(f"{case.name}: building {name}")
            kept.table(name, self.build)
        except built.UnavailableError as reason:
            measured[name] = {"unavailable": str(reason), "engines": {}}
            report.say(f"    {case.name}, {name}: {reason}")
            return
        allotted = {engine: runs[case.name, name, engine] for engine, _ in task.wanted}
        before = {
            engine: found
            for engine, often in allotted.items()
            if (found := self.from_before(task, engine) if often else self.known(task, engine))
        }
        allotted = {engine: often or 1 for engine, often in allotted.items() if engine not in before}
        fresh = turns.take_turns(case, name, allotted, self.arguments.limit, self.warm_up, self.durations)
        for engine, wanted in task.wanted:
            if engine in fresh and allotted[engine] < wanted:
                fresh[engine]["fewer"] = "budget"
        by_engine = {engine: {**fresh, **before}[engine] for engine, _ in task.wanted}
        turns.compare(case, name, by_engine, self.answers)
        measured[name] = {"made_by": [kept.recipe(case, name), self.times], "engines": by_engine}
        if not self.is_trial:
            for engine, wanted in task.wanted:
                if turns.is_peer(engine) and "fewer" not in by_engine[engine]:
                    self.peers.add(case, name, engine, wanted, self.arguments.limit, by_engine[engine])
            self.peers.file.write()
            self.results.write()
        self.durations.file.write()
        report.say(f"    {cells.line(case, name, by_engine)}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 files, two runs without warm-up, nothing written")
    parser.add_argument("--only", default="", help="cases whose name contains one of these, by commas")
    parser.add_argument(
        "--engines", default="", help=f"engines, by commas; all unless they are given: {','.join(ENGINES)}"
    )
    parser.add_argument("--sizes", default=",".join(tables.SIZES), help="sizes, by commas: %(default)s")
    parser.add_argument(
        "--scale",
        type=float,
        default=1,
        help="of the cases that write, change rows and maintain, such as 0.01: these alone, and nothing is written",
    )
    parser.add_argument("--runs", type=int, help="runs after the warm-up")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run of a peer is cut off")
    parser.add_argument(
        "--budget",
        type=float,
        default=30,
        help="minutes, %(default)s by default: the slowest peers run once where all would take longer; 0 for no bound",
    )
    parser.add_argument("--estimate", action="store_true", help="say what would be measured and how long it would take")
    parser.add_argument("--keep-peers", action="store_true", help="show peers' earlier results instead of running them")
    parser.add_argument("--again", action="store_true", help="measure anew what was measured already")
    parser.add_argument("--write", action="store_true", help="write README.md and plots from what was measured so far")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.one:
        turns.measure(*arguments.one)
        return
    if arguments.answer:
        turns.answer_all(arguments.answer)
        return
    built.FOLDER.mkdir(exist_ok=True)
    bench = Bench(arguments)
    if not arguments.write:
        try:
            bench.measure_all()
        finally:
            turns.clear()
    if arguments.estimate:
        return
    results = bench.results.content
    print(report.page(results, quick=bench.is_trial))
    is_narrowed = bench.is_trial or arguments.only or arguments.sizes != ",".join(tables.SIZES)
    if arguments.write or (not is_narrowed and all(case.name in results["cases"] for case in CASES)):
        report.write(BENCHES, results)
    failed = [
        f"{name} of {table}"
        for name, measured in results["cases"].items()
        for table, outcome in measured.items()
        if "error" in outcome["engines"].get("deltic", {})
    ]
    if failed:
        raise SystemExit(f"deltic failed in {', '.join(failed)}")


if __name__ == "__main__":
    main()
