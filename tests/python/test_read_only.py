"""Folders that the user may read and not write: each operation names the folder and what to do, and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import unprivileged

import deltic

pytestmark = pytest.mark.slow
OPERATIONS = {
    "append": "deltic.write(table, rows)",
    "overwrite": "deltic.write(table, rows, mode='overwrite')",
    "many partitions": "deltic.write(table, pa.table({'id': range(20), 'p': range(20)}))",
    "delete": "table.delete('id = 1')",
    "update": "table.update({'id': '7'}, 'id = 1')",
    "merge": "table.merge(rows, 'source.id = target.id').when_matched_delete().execute()",
    "optimize": "table.optimize()",
    "z-order": "table.optimize(zorder_by=['id'])",
    "restore": "table.restore(0)",
    "vacuum": "table.vacuum(0, force=True)",
    "checkpoint": "table.checkpoint()",
    "new column": "table.add_columns(deltic.field('c', 'string'))",
    "new table": "deltic.write(folder + '/new', rows)",
    "copy": "table.clone(folder + '/copy', shallow=False)",
}
PROGRAM = """
import json
import pyarrow as pa
import deltic

rows = pa.table({"id": [1], "p": [0]})

def outcomes(folder):
    table = deltic.Table(folder + "/table")
    assert table.scan().count() == 3
    for name, operation in json.loads(sys.argv[1]).items():
        try:
            eval(operation)
            yield name, ["", ""]
        except Exception as error:
            yield name, [type(error).__name__, str(error)]

of_owner = dict(outcomes(sys.argv[2]))
give_up_rights()
print(json.dumps([of_owner, *(dict(outcomes(folder)) for folder in sys.argv[3:])]))
"""
# Which folders of the table are read-only. The folder around it always is.
CASES = [("table", False), ("table", True), ("log", False), ("log", True)]
Outcomes = list[dict[str, tuple[str, str]]]


def fill(folder: Path, vectors: bool) -> None:
    properties = {"delta.enableDeletionVectors": str(vectors).lower(), "delta.enableChangeDataFeed": "true"}
    table = deltic.Table(folder / "table")
    for id in (0, 1, 2, 9):
        rows = pa.table({"id": [id], "p": [0]})
        deltic.write(table, rows, partition_by=["p"], properties=properties if id == 0 else None)
    table.delete("id = 9")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    """The kind and message of the error of each operation: of the owner, who has none, and in each of the cases."""
    with unprivileged.open_folder() as root:
        fill(root / "own", vectors=True)
        before = {}
        for number, (what, vectors) in enumerate(CASES):
            folder = root / str(number)
            fill(folder, vectors)
            before[folder] = entries(folder)
            for path in (path for path in [folder, *before[folder]] if path.is_dir()):
                is_open = what == "log" and path != folder and "_delta_log" not in path.parts
                path.chmod(0o777 if is_open else 0o555)
        found = unprivileged.run(PROGRAM, json.dumps(OPERATIONS), str(root / "own"), *map(str, before))
        for folder, paths in before.items():
            assert [path for path in entries(folder) if path.is_file()] == [path for path in paths if path.is_file()]
        yield json.loads(found)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0] + " with vectors" * case[1])
def test_a_folder_that_may_not_be_written(outcomes: Outcomes, case: tuple[str, bool], name: str) -> None:
    assert outcomes[0][name] == ["", ""], "the owner can do it"
    kind, message = outcomes[1 + CASES.index(case)][name]
    assert kind == "StorageError", message
    folder = {"new table": "", "copy": ""}.get(name, "/table")
    assert f"/{CASES.index(case)}{folder}" in message
    assert "no permission to" in message
    assert "change its permissions or its owner" in message
