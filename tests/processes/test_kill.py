"""Writers are killed at any moment: the table opens, every acknowledged commit exists, and none is incomplete."""

import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import KILLS, report
from proof import committed_ids, leftovers, read_log
from writers import SCHEMA, Running, Told, Work, all_kinds, row, running

import deltic

SEED = 20260301
AT_ONCE = 4
FOREVER = 1_000_000


def wait_for_one(process: Running) -> list[Any]:
    """What a process says first: it has committed, so it is at work."""
    assert process.pipe.poll(60), "the process does not commit"
    return [process.pipe.recv()]


def check_survivors(uri: str, told: dict[str, list[Told]], killed: set[str]) -> None:
    """Each writer has its own part, so its last acknowledged write must be there."""
    commits = read_log(uri)
    by_id: dict[str, int] = {}
    for version, actions in enumerate(commits):
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if id := info.get("userMetadata"):
            assert id not in by_id, f"{id} was committed as version {by_id[id]} and {version}"
            by_id[id] = version
    rows = committed_ids(deltic.Table(uri))
    assert not rows or set(rows.values()) == {1}
    for name, heard in told.items():
        for one in heard:
            assert [by_id[id] for id in one.kept] == [one.version], "what was acknowledged is there"
        gone = {id for one in heard for id in one.removed}
        acknowledged = {id for one in heard for id in one.kept}
        there = {id for id in rows if id.startswith(f"{name}-")}
        unheard = {id for id in by_id if id.startswith(f"{name}-")} - acknowledged
        assert len(unheard) <= (name in killed), f"{name} has commits that nobody was told of: {unheard}"
        replaced = [action for id in unheard for action in commits[by_id[id]] if "remove" in action]
        assert there == unheard | (set() if replaced else acknowledged - gone)


def test_kills_leave_no_half_commit(uri: str) -> None:
    chosen = random.Random(SEED)
    table = deltic.Table(uri)
    deltic.create(table, SCHEMA, ["part"], properties={"delta.checkpointInterval": "3"})
    told: dict[str, list[Told]] = {}
    killed: set[str] = set()
    began, own = time.perf_counter(), itertools.count()
    while len(killed) < KILLS:
        names = [f"k{len(killed) + n}" for n in range(min(AT_ONCE, KILLS - len(killed)))]
        works = [(all_kinds, Work(uri, name, FOREVER, name, seed=chosen.randrange(2**32))) for name in names]
        with running(works) as processes:
            first = [wait_for_one(process) for process in processes]
            for process, heard in zip(processes, first, strict=True):
                time.sleep(chosen.random() * 0.2)
                process.process.kill()
                killed.add(process.work.name)
                told[process.work.name] = [*heard, *process.everything()]
                # The table opens, with the others still writing, and goes on.
                number = next(own)
                version = deltic.write(uri, row("own", number, "own"), user_metadata=f"own-{number}").version
                told.setdefault("own", []).append(Told(version, 1, 0, (f"own-{number}",)))
        check_survivors(uri, told, killed)
    seconds = time.perf_counter() - began
    # Who dies between a checkpoint and the hint to it leaves that to an older one: allowed, and mended by the next.
    assert {finding.kind for finding in table.check(files=True).findings} <= {"last_checkpoint"}
    table.checkpoint()
    left = leftovers(uri, read_log(uri))
    commits = sum(map(len, told.values()))
    unheard = table.snapshot().version - commits
    report(
        f"{KILLS} kills among {commits} acknowledged commits in {seconds:.1f} s: {unheard} commits landed unheard, "
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
