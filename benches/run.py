"""The benchmark harness: `make bench`, `make bench-quick`.

Every measurement runs in a process of its own, several times, peers beside deltic in the same run; the table printed,
and written to benches/README.md by a full run, has medians and the peak memory of the process.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

BENCHES = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHES), str(BENCHES / "python")]

from cases import CASES  # noqa: E402
from tables import table  # noqa: E402

TABLES = BENCHES / "tables"


def measure(case_name: str, engine: str, uri: str) -> None:
    """Run one case once, in this process, and print what it took as JSON."""
    case = next(case for case in CASES if case.name == case_name)
    for module in (engine, "pyarrow.dataset"):  # importing is not what is measured
        import_module(module)
    with tempfile.TemporaryDirectory() as scratch:
        started = time.perf_counter()
        result = case.engines[engine](uri, Path(scratch))
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": seconds, "peak": peak, "result": result}))


def run(case_name: str, engine: str, uri: str, times: int) -> dict[str, float]:
    """Run one case several times, each in a new process."""
    runs = []
    for _ in range(times):
        command = [sys.executable, __file__, "--one", case_name, engine, uri]
        finished = subprocess.run(command, check=False, capture_output=True, text=True)
        if finished.returncode:
            raise SystemExit(f"{case_name} with {engine} failed:\n{finished.stderr[-2000:]}")
        runs.append(json.loads(finished.stdout.splitlines()[-1]))
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "peak": max(run["peak"] for run in runs),
        "result": runs[0]["result"],
    }


def duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, one run each, nothing written")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(*arguments.one)
        return

    lines = ["| Case | Table | Engine | Median | Peak memory |", "|---|---|---|---:|---:|"]
    for case in CASES:
        if arguments.only and arguments.only not in case.name:
            continue
        name = case.quick if arguments.quick else case.full
        print(f"{case.name}: {name}", file=sys.stderr, flush=True)
        uri = table(name, TABLES)
        results = {}
        for engine in case.engines:
            taken = results[engine] = run(case.name, engine, uri, 1 if arguments.quick else 5)
            lines.append(
                f"| {case.name} | {name} | {engine} {import_module(engine).__version__} | {duration(taken['seconds'])} "
                f"| {taken['peak'] / 1e6:.0f} MB |"
            )
        if len({taken["result"] for taken in results.values()}) > 1:
            raise SystemExit(f"{case.name}: the engines disagree: {results}")
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    how = "One run each, on small tables." if arguments.quick else "Medians of five runs."
    page = "\n".join(["# Results", "", f"`make bench` on {machine}. {how}", "", *lines, ""])
    print(page)
    if not (arguments.quick or arguments.only):
        (BENCHES / "README.md").write_text(page)


if __name__ == "__main__":
    main()
