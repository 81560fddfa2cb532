"""Symlink manifests: they list the live files, and stale manifests are deleted."""

from __future__ import annotations

import json
import random
import shutil
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import Log
from object_store import object_store
from symlink_manifests import FOLDER, manifests

import deltic
from deltic import InvalidInputError, Table, UnsupportedFeatureError, cli

ENABLED = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}


def live(table: Table) -> list[str]:
    paths = table.files().read_all()["path"].to_pylist()
    return sorted(f"file:{table.uri}/{unquote(path)}" for path in paths)


def listed(uri: str) -> list[str]:
    return sorted(line for lines in manifests(uri).values() for line in lines)


def test_a_table_without_partitions_has_one_manifest(uri: str) -> None:
    deltic.create(uri, pa.schema([("n", pa.int64())]))
    table = Table(uri)
    assert table.write_manifests().written == [f"{FOLDER}/manifest"]
    assert manifests(uri) == {".": []}
    for n in range(3):
        deltic.write(table, pa.table({"n": [n]}))
    result = table.write_manifests()
    assert (result.version, result.files, result.deleted) == (3, 3, [])
    assert manifests(uri) == {".": live(table)}
    rows = [pq.read_table(line.removeprefix("file:")) for line in manifests(uri)["."]]
    assert sorted(pa.concat_tables(rows)["n"].to_pylist()) == [0, 1, 2]


def test_each_partition_has_a_manifest_and_stale_ones_are_deleted(uri: str) -> None:
    values = ["a", None, "a b", "x/y", "50%", "ü", "c=d", "", "tab\t", "{[]}^"]
    data = pa.table({"p": values, "q": range(len(values)), "n": range(len(values))})
    deltic.write(uri, data, partition_by=["p", "q"])
    table = Table(uri)
    plan = table.write_manifests(dry_run=True)
    assert not Path(uri, FOLDER).exists()
    result = table.write_manifests()
    assert (result.written, result.files) == (plan.written, len(values))
    null = "__HIVE_DEFAULT_PARTITION__"
    names = ["a", null, "a b", "x%2Fy", "50%25", "ü", "c%3Dd", null, "tab%09", "%7B%5B%5D}%5E"]
    assert set(manifests(uri)) == {f"p={name}/q={q}" for q, name in enumerate(names)}
    assert listed(uri) == live(table)
    assert all(Path(line.removeprefix("file:")).is_file() for line in listed(uri))
    table.delete("q < 3")
    result = table.write_manifests()
    assert result.deleted == sorted(f"{FOLDER}/p={name}/q={q}/manifest" for q, name in enumerate(names[:3]))
    assert listed(uri) == live(table)
    table.delete()
    table.write_manifests()
    assert manifests(uri) == {}


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True])
def test_the_property_updates_manifests_after_each_commit(uri: str, partitioned: bool) -> None:
    rng = random.Random(f"{partitioned}")
    deltic.write(uri, pa.table({"p": [0], "n": [0]}), partition_by=["p"] if partitioned else None)
    table = Table(uri)
    assert manifests(uri) == {}
    table.set_properties(ENABLED)
    assert listed(uri) == live(table)
    for step in range(12):
        kind = rng.choice(["append", "append", "delete", "overwrite", "optimize"])
        rows = pa.table({"p": [step % 3, step % 2], "n": [step, step]})
        if kind == "delete":
            table.delete(f"p = {rng.randrange(3)}")
        elif kind == "optimize":
            table.optimize()
        else:
            deltic.write(table, rows, mode=kind)
        assert listed(uri) == live(table), kind
    table.unset_properties(*ENABLED)
    before = listed(uri)
    deltic.write(table, pa.table({"p": [1], "n": [1]}))
    assert listed(uri) == before


class History:
    """Random commits by two handles to a table whose manifests are kept up to date."""

    def __init__(self, uri: str, seed: str) -> None:
        self.rng = random.Random(seed)
        self.uri = uri
        deltic.write(uri, self.rows(), partition_by=["p", "q"], properties={**ENABLED, "delta.checkpointInterval": "4"})
        self.handles = [Table(uri), Table(uri)]
        self.n = 0

    def rows(self) -> pa.Table:
        count = self.rng.randrange(1, 5)
        p = self.rng.choices([None, "", "a", "a b", "x/y", "50%"], k=count)
        q = self.rng.choices([None, 1.5, -0.0, 0.0, float("nan")], k=count)
        return pa.table({"p": p, "q": pa.array(q, pa.float64()), "n": self.rng.choices(range(100), k=count)})

    def step(self) -> str:
        table, rng, rows = self.rng.choice(self.handles), self.rng, self.rows()
        steps: dict[str, Callable[[], object]] = {
            "append": lambda: deltic.write(table, rows),
            "append again": lambda: deltic.write(table, rows),
            "overwrite": lambda: deltic.write(table, rows, mode="overwrite"),
            "partitions": lambda: deltic.write(table, rows, mode="overwrite", partition_overwrite="dynamic"),
            "delete rows": lambda: table.delete(f"n % 3 = {rng.randrange(3)}"),
            "delete partition": lambda: table.delete(rng.choice(["p = 'a'", "p IS NULL", "q = 0"])),
            "move rows": lambda: table.update({"p": "'a b'"}, f"n % 5 = {rng.randrange(5)}"),
            "optimize": lambda: table.optimize(),
            "restore": lambda: table.restore(rng.randrange(table.snapshot().version + 1)),
            "repartition": lambda: deltic.write(
                table, rows, mode="overwrite", schema_mode="overwrite", partition_by=rng.choice([["p"], ["q", "p"], []])
            ),
            "comment": lambda: table.set_properties({"comment": f"{rng.random()}"}),
            "no manifests": lambda: shutil.rmtree(Path(self.uri, FOLDER), ignore_errors=True),
        }
        kind = rng.choice(list(steps))
        steps[kind]()
        if kind == "no manifests":
            deltic.write(table, rows)
        return kind


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_commits_leave_the_manifests_of_a_full_generation(uri: str, seed: int) -> None:
    history = History(uri, f"manifests {seed}")
    kinds = []
    for _ in range(25):
        kinds.append(history.step())
        after = manifests(uri)
        assert listed(uri) == live(Table(uri)), kinds
        shutil.rmtree(Path(uri, FOLDER))
        Table(uri).write_manifests()
        assert manifests(uri) == after, kinds


def test_only_the_manifests_of_touched_partitions_are_written() -> None:
    with object_store() as store:
        table = Table("s3://bucket/table", store.options)
        deltic.write(table, pa.table({"p": range(1500), "n": range(1500)}), partition_by=["p"], properties=ENABLED)

        def manifest(p: int) -> str:
            return f"bucket/table/{FOLDER}/p={p}/manifest"

        def requests(step: Callable[[], object]) -> list[tuple[str, str]]:
            """Methods and paths, and prefixes of listings, where they are of manifests."""
            seen: list[tuple[str, str]] = []
            store.before = lambda method, path: seen.append((method, path))
            store.after_listing = lambda prefix: seen.append(("LIST", prefix))
            step()
            store.before = store.after_listing = None
            return sorted((method, path) for method, path in seen if FOLDER in path)

        one_page = ("LIST", f"table/{FOLDER}/")
        append = requests(lambda: deltic.write(table, pa.table({"p": [7, 8], "n": [1, 2]})))
        assert append == [one_page, ("PUT", manifest(7)), ("PUT", manifest(8))]
        emptied = requests(lambda: table.delete("p = 7"))
        assert emptied == [("DELETE", manifest(7)), one_page]
        assert manifest(7) not in store.files
        nothing = requests(
            lambda: deltic.write(table, pa.table({"p": [8], "n": [1]}).slice(1), app_id="a", app_version=1)
        )
        assert nothing == [one_page]
        assert requests(lambda: table.set_properties({"comment": "c"})) == [one_page]
        assert table.snapshot().version == 4


def test_partitions_that_share_a_folder_share_a_manifest(uri: str) -> None:
    null = pa.array([None], pa.string())
    data = pa.table({"p": ["__HIVE_DEFAULT_PARTITION__"], "n": [1]})
    deltic.write(uri, data, partition_by="p", properties=ENABLED)
    deltic.write(uri, pa.table({"p": null, "n": [2]}))
    table = Table(uri)
    assert listed(uri) == live(table)
    assert len(listed(uri)) == 2
    table.delete("p IS NULL")
    assert listed(uri) == live(table)
    assert len(listed(uri)) == 1


def test_concurrent_writers_leave_the_manifests_of_the_newest_version(uri: str) -> None:
    deltic.write(uri, pa.table({"p": range(4), "n": range(4)}), partition_by=["p"], properties=ENABLED)

    def commits(writer: int) -> None:
        table = Table(uri)
        for step in range(6):
            deltic.write(table, pa.table({"p": [writer % 4, step % 4], "n": [100 * writer + step] * 2}))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(commits, range(3)))
    assert Table(uri).snapshot().version == 18
    assert listed(uri) == live(Table(uri))


@pytest.mark.parametrize("partition_by", [None, "p"])
def test_commits_without_files_change_no_manifest(uri: str, partition_by: str | None) -> None:
    deltic.write(uri, pa.table({"p": [1, 2], "n": [1, 2]}), partition_by=partition_by, properties=ENABLED)
    table = Table(uri)
    before = manifests(uri)
    deltic.write(table, pa.table({"p": [1], "n": [1]}).slice(1), app_id="a", app_version=1)
    assert manifests(uri) == before
    table.set_properties({"comment": "c"})
    assert manifests(uri) == before
    assert (table.snapshot().version, listed(uri)) == (2, live(table))


def test_without_manifests_all_are_written(uri: str) -> None:
    deltic.write(uri, pa.table({"p": [1, 2], "n": [1, 2]}), partition_by=["p"], properties=ENABLED)
    table = Table(uri)
    shutil.rmtree(Path(uri, FOLDER))
    deltic.write(table, pa.table({"p": [1], "n": [3]}))
    assert listed(uri) == live(table)
    assert set(manifests(uri)) == {"p=1", "p=2"}
    # One that is missing among others is not noticed before its partition changes, or all are written.
    Path(uri, FOLDER, "p=2", "manifest").unlink()
    deltic.write(table, pa.table({"p": [1], "n": [4]}))
    assert set(manifests(uri)) == {"p=1"}
    table.write_manifests()
    assert listed(uri) == live(table)


def test_manifests_that_failed_are_repaired(uri: str) -> None:
    deltic.write(uri, pa.table({"p": [1, 2], "n": [1, 2]}), partition_by=["p"], properties=ENABLED)
    table, before = Table(uri), manifests(uri)
    blocked = Path(uri, FOLDER, "p=2", "manifest")
    blocked.unlink()
    blocked.mkdir()
    with pytest.warns(RuntimeWarning, match="after the commit of version 1"):
        deltic.write(table, pa.table({"p": [2], "n": [3]}))
    blocked.rmdir()
    deltic.write(table, pa.table({"p": [1], "n": [4]}))
    assert manifests(uri).keys() == before.keys() - {"p=2"}
    table.write_manifests()
    assert listed(uri) == live(table)


def test_a_commit_succeeds_without_manifests(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableDeletionVectors": "true"})
    table = Table(uri)
    table.delete("n = 1")
    with pytest.warns(RuntimeWarning, match=r"after the commit of version 2: .*Table\.purge"):
        table.set_properties({**ENABLED, "delta.enableDeletionVectors": "false"})
    assert table.scan().count() == 1
    table.purge()
    assert listed(uri) == live(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deltic.write(table, pa.table({"n": [3]}))
    assert listed(uri) == live(table)


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}])
def test_incompatible_properties_are_refused(uri: str, other: dict[str, str]) -> None:
    name = next(iter(other))
    for make in (
        lambda: deltic.write(uri, pa.table({"n": [1]}), properties={**ENABLED, **other}),
        lambda: deltic.create(uri, pa.schema([("n", pa.int64())]), properties={**ENABLED, **other}),
    ):
        with pytest.raises(InvalidInputError, match=f"{name}.*exclude each other"):
            make()
    deltic.write(uri, pa.table({"n": [1]}), properties=ENABLED)
    with pytest.raises(InvalidInputError, match="exclude each other"):
        Table(uri).set_properties(other)
    deltic.write(f"{uri}-other", pa.table({"n": [1]}), properties=other)
    with pytest.raises(InvalidInputError, match="exclude each other"):
        Table(f"{uri}-other").set_properties(ENABLED)


@pytest.mark.parametrize(
    ("path", "why"), [("a%0Afile:/etc/passwd", "control character"), ("../q.parquet", "q.parquet")]
)
def test_paths_that_a_manifest_cannot_hold_are_refused(uri: str, path: str, why: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    log = Log(uri)
    name = next(action["add"]["path"] for action in log.read(0) if "add" in action)
    log.path(0).write_text(log.path(0).read_text().replace(name, path))
    log.path(0, "crc").unlink()
    with pytest.raises(deltic.DelticError, match=why):
        Table(uri).write_manifests()
    assert manifests(uri) == {}


def test_values_too_long_for_a_folder_are_refused_before_any_is_written(uri: str) -> None:
    deltic.write(uri, pa.table({"p": ["a", "ü" * 200], "n": [1, 2]}), partition_by=["p"])
    with pytest.raises(UnsupportedFeatureError, match="too long"):
        Table(uri).write_manifests()
    assert manifests(uri) == {}


@pytest.mark.slow
def test_a_slow_writer_does_not_leave_stale_manifests() -> None:
    """One of its manifests is put after another writer has committed and written all manifests."""
    with object_store() as store:
        table = Table("s3://bucket/table", store.options)
        data = pa.table({"p": [*range(8)] * 2, "n": range(16)})
        deltic.write(table, data, partition_by=["p"], properties=ENABLED)
        held, go_on = threading.Event(), threading.Event()

        def hold_the_first(method: str, path: str) -> None:
            if method == "PUT" and path.endswith("/manifest") and not held.is_set():
                held.set()
                assert go_on.wait(60)

        store.before = hold_the_first
        with ThreadPoolExecutor(1) as pool:
            other = Table("s3://bucket/table", store.options)
            slow = pool.submit(deltic.write, other, pa.table({"p": [*range(8)], "n": [-1] * 8}))
            try:
                assert held.wait(60)
                table.delete("n >= 0")
            finally:
                go_on.set()
            assert slow.result(60).version == 1
        files = table.files().read_all()["path"].to_pylist()
        written = [body.decode() for path, (body, _) in store.files.items() if path.endswith("/manifest")]
        lines = sorted(line for text in written for line in text.split("\n") if line)
        assert lines == sorted(f"s3://bucket/table/{unquote(path)}" for path in files)
        assert len(lines) == 8


def test_tables_that_readers_of_manifests_misread_are_refused(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1, 2]}), properties={"delta.enableDeletionVectors": "true"})
    table = Table(uri)
    table.write_manifests()
    before = manifests(uri)
    table.delete("n = 1")
    with pytest.raises(UnsupportedFeatureError, match=r"deletion vectors.*Table\.purge"):
        table.write_manifests()
    assert manifests(uri) == before
    table.purge()
    assert table.write_manifests().files == 1
    table.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises(UnsupportedFeatureError, match="column mapping"):
        table.write_manifests()


def test_vacuum_keeps_manifests(uri: str) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    table = Table(uri)
    table.write_manifests()
    deltic.write(table, pa.table({"n": [2]}), mode="overwrite")
    table.vacuum(0, force=True)
    assert list(manifests(uri)) == ["."]


def test_command_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    deltic.write(uri, pa.table({"n": [1]}))
    assert cli.main(["manifests", uri, "--dry-run"]) == 0
    assert f"write   {FOLDER}/manifest" in capsys.readouterr().out
    assert manifests(uri) == {}
    assert cli.main(["manifests", uri, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["files"], output["written"], output["dry_run"]) == (1, [f"{FOLDER}/manifest"], False)
    assert cli.main(["manifests", uri]) == 0
    assert "1 manifest of version 0 written" in capsys.readouterr().out
    Table(uri).set_properties({"delta.columnMapping.mode": "name"})
    assert cli.main(["manifests", uri]) == 1
    assert "column mapping" in capsys.readouterr().err
