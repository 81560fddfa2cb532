"""Checks after concurrent writes: each acknowledged row and version exists once, and no commit is incomplete."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from writers import Committed, Refused

import deltic

Actions = list[dict[str, Any]]

NAME = re.compile(r"(?P<version>\d{20})\.(?P<kind>json|crc|checkpoint\.parquet)")
# Hadoop writes a checksum file for each file.
OF_HADOOP = re.compile(r"\..+\.crc")
TEMPORARY = re.compile(r"\.tmp-[0-9a-f-]{36}")


class Left(NamedTuple):
    """Numbers of files that no commit names: temporary files, and data files whose commit was not made."""

    unfinished: int
    unreferenced: int


def committed_ids(table: deltic.Table) -> Counter[str]:
    return Counter(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def check_appends(table: deltic.Table, messages: list[Any], expected: int) -> list[Committed]:
    """Check a table that was created empty: all appends were acknowledged, and each is one version with one row."""
    refused = [one for one in messages if isinstance(one, Refused)]
    assert not refused, refused[:3]
    acknowledged = sorted(messages, key=lambda one: one.version)
    assert len(acknowledged) == expected
    assert [one.version for one in acknowledged] == list(range(1, expected + 1)), "versions are acknowledged once"
    ids = committed_ids(table)
    assert ids == Counter(id for one in acknowledged for id in one.kept), "each row is there once"
    assert set(ids.values()) == {1}
    history = {entry["version"]: entry for entry in table.history()}
    assert sorted(history) == list(range(expected + 1))
    for one in acknowledged:
        assert (history[one.version]["userMetadata"],) == one.kept, f"version {one.version} is another writer's"
    assert len({entry["txnId"] for entry in history.values()}) == expected + 1
    assert table.snapshot().num_files == expected
    assert table.check(files=True).ok
    return acknowledged


def read_log(uri: str, *, mixed: bool = False) -> list[Actions]:
    """Read all commits of a local table, and check that each is complete and that the log has no unexpected files.

    In a `mixed` table other writers may have left Hadoop checksums, commits without `txnId` or without a final newline.
    """
    versions: dict[int, Actions] = {}
    for path in Path(uri, "_delta_log").iterdir():
        if mixed and OF_HADOOP.fullmatch(path.name):
            continue
        if path.name == "_last_checkpoint" or TEMPORARY.fullmatch(path.name):
            continue
        name = NAME.fullmatch(path.name)
        assert name, f"{path.name} does not belong in a log"
        if name["kind"] == "json":
            text = path.read_text()
            assert text.endswith("\n") or (mixed and "deltic/" not in text), f"{path.name} is cut off"
            versions[int(name["version"])] = [json.loads(line) for line in text.splitlines()]
        elif name["kind"] == "crc":
            json.loads(path.read_text())
    assert sorted(versions) == list(range(len(versions))), "versions are contiguous"
    commits = [versions[version] for version in range(len(versions))]
    infos = [action["commitInfo"] for actions in commits for action in actions if "commitInfo" in action]
    assert len(infos) == len(commits)
    ids = [info["txnId"] for info in infos if "txnId" in info or not mixed]
    assert len(set(ids)) == len(ids), "transaction ids are unique"
    return commits


def check_checksums(uri: str, commits: list[Actions]) -> int:
    """Check file count and size in every checksum; return the number of checksums."""
    sizes: dict[str, int] = {}
    found = 0
    for version, actions in enumerate(commits):
        for action in actions:
            if "add" in action:
                sizes[action["add"]["path"]] = action["add"]["size"]
            elif "remove" in action:
                sizes.pop(action["remove"]["path"], None)
        path = Path(uri, "_delta_log", f"{version:020}.crc")
        if path.exists():
            checksum = json.loads(path.read_text())
            counted = (len(sizes), sum(sizes.values()))
            assert (checksum["numFiles"], checksum["tableSizeBytes"]) == counted, path.name
            found += 1
    return found


def leftovers(uri: str, commits: list[Actions]) -> Left:
    """Count files that no commit names, and check that all live files exist with their sizes."""
    named = {
        unquote(file["path"])
        for actions in commits
        for action in actions
        for kind, file in action.items()
        if kind in ("add", "remove")
    }
    unfinished = len([path for path in Path(uri).rglob("*") if TEMPORARY.fullmatch(path.name)])
    data = {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}
    others = [path for path in Path(uri).rglob("*") if path.is_file() and path.suffix != ".parquet"]
    others = [path for path in others if "_delta_log" not in path.parts and not OF_HADOOP.fullmatch(path.name)]
    assert all(TEMPORARY.fullmatch(path.name) for path in others), others
    table = deltic.Table(uri)
    assert {unquote(path) for path in table.files().read_all()["path"].to_pylist()} <= data
    found = table.check(files=True)
    assert found.ok, found
    return Left(unfinished, len(data - named))


def rates(acknowledged: list[Committed], seconds: float) -> str:
    """Commits per second and latencies, as text."""
    took = sorted(one.seconds for one in acknowledged)
    attempts = Counter(one.attempts for one in acknowledged)
    slow = took[min(len(took) * 99 // 100, len(took) - 1)]
    return (
        f"{len(took)} commits in {seconds:.1f} s ({len(took) / seconds:.0f}/s), half within "
        f"{took[len(took) // 2]:.3f} s, 99 % within {slow:.3f} s, at most {max(attempts)} attempts"
    )
