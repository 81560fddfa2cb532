"""Writers are killed at random moments: the table opens, every acknowledged commit exists, no commit is incomplete."""

import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import KILLS, report
from proof import committed_ids, leftovers, read_log
from writers import SCHEMA, Committed, Running, Work, all_kinds, row, running

import deltic

SEED = 20260301
AT_ONCE = 4
FOREVER = 1_000_000


def wait_for_one(process: Running) -> list[Any]:
    """Wait for the first message of a process, which it sends after its first commit."""
    assert process.pipe.poll(60), "the process made no commit"
    return [process.pipe.recv()]


def check_survivors(uri: str, received: dict[str, list[Committed]], killed: set[str]) -> None:
    """Check that all acknowledged commits exist, and of each killed writer at most one commit that it did not report.

    Each writer has its own part, so that no other writer removes its rows.
    """
    commits = read_log(uri)
    by_id: dict[str, int] = {}
    for version, actions in enumerate(commits):
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if id := info.get("userMetadata"):
            assert id not in by_id, f"{id} was committed as version {by_id[id]} and {version}"
            by_id[id] = version
    rows = committed_ids(deltic.Table(uri))
    assert not rows or set(rows.values()) == {1}
    for name, messages in received.items():
        for one in messages:
            assert [by_id[id] for id in one.kept] == [one.version], "an acknowledged commit exists"
        gone = {id for one in messages for id in one.removed}
        acknowledged = {id for one in messages for id in one.kept}
        there = {id for id in rows if id.startswith(f"{name}-")}
        unreported = {id for id in by_id if id.startswith(f"{name}-")} - acknowledged
        assert len(unreported) <= (name in killed), f"{name} has unreported commits: {unreported}"
        replaced = [action for id in unreported for action in commits[by_id[id]] if "remove" in action]
        assert there == unreported | (set() if replaced else acknowledged - gone)


def test_kills_leave_no_half_commit(uri: str) -> None:
    chosen = random.Random(SEED)
    table = deltic.Table(uri)
    deltic.create(table, SCHEMA, ["part"], properties={"delta.checkpointInterval": "3"})
    received: dict[str, list[Committed]] = {}
    killed: set[str] = set()
    began, own = time.perf_counter(), itertools.count()
    while len(killed) < KILLS:
        names = [f"k{len(killed) + n}" for n in range(min(AT_ONCE, KILLS - len(killed)))]
        works = [(all_kinds, Work(uri, name, FOREVER, name, seed=chosen.randrange(2**32))) for name in names]
        with running(works) as processes:
            first = [wait_for_one(process) for process in processes]
            for process, messages in zip(processes, first, strict=True):
                time.sleep(chosen.random() * 0.2)
                process.process.kill()
                killed.add(process.work.name)
                received[process.work.name] = [*messages, *process.everything()]
                # The table can be opened and written while the others still write.
                number = next(own)
                version = deltic.write(uri, row("own", number, "own"), user_metadata=f"own-{number}").version
                received.setdefault("own", []).append(Committed(version, 1, 0, (f"own-{number}",)))
        check_survivors(uri, received, killed)
    seconds = time.perf_counter() - began
    # A writer killed between a checkpoint and its hint leaves an outdated hint. The next checkpoint corrects it.
    assert {finding.kind for finding in table.check(files=True).findings} <= {"last_checkpoint"}
    table.checkpoint()
    left = leftovers(uri, read_log(uri))
    commits = sum(map(len, received.values()))
    unreported = table.snapshot().version - commits
    report(
        f"{KILLS} kills among {commits} acknowledged commits in {seconds:.1f} s: {unreported} unreported commits, "
        f"{left.unreferenced} data files and {left.unfinished} unfinished files left over"
    )
    check_others_read(uri)


def check_others_read(uri: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    theirs = deltalake.DeltaTable(uri)
    assert theirs.version() == deltic.Table(uri).snapshot().version
    assert Counter(theirs.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == committed_ids(deltic.Table(uri))


def test_unfinished_files_are_not_listed(uri: str) -> None:
    table = deltic.Table(uri)
    deltic.create(table, SCHEMA)
    log = Path(uri, "_delta_log")
    for folder in (log, Path(uri)):
        (folder / ".tmp-00000000-0000-4000-8000-000000000000").write_text('{"commitInfo":{')
    for number in range(12):
        deltic.write(table, row("own", number, "own"))
    assert deltic.Table(uri).check(files=True).ok
    assert committed_ids(deltic.Table(uri)).total() == 12
    assert leftovers(uri, read_log(uri)).unfinished == 2
    check_others_read(uri)
