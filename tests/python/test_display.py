"""Display: reprs, tables for notebooks, and hints for attribute names of other clients; pickling."""

import html.parser
import pickle
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import deltic
from deltic.display.strings import printable, size
from deltic.hints.names import SCANS, SNAPSHOTS, TABLES, TOP

HOSTILE = "\x1b]0;title\x07\x1b[31mred\x7f\x9b2J\u202egnp\u2066\u200b\u2028\n\r\t\ufeff"


@pytest.fixture
def table(uri: str) -> deltic.Table:
    table = deltic.Table(uri)
    deltic.write(table, pa.table({"m": [1, 1, 2], "v": [1, 2, 3]}), partition_by=["m"])
    deltic.write(table, pa.table({"m": [3], "v": [4]}))
    return table


def test_control_characters_are_escaped() -> None:
    shown = printable(f"a{HOSTILE}é😀\ud800b")
    assert shown.isprintable()
    assert shown.startswith(
        "a\\x1b]0;title\\x07\\x1b[31mred\\x7f\\x9b2J\\u202egnp\\u2066\\u200b\\u2028\\n\\r\\t\\ufeffé😀"
    )
    assert printable("plain é") == "plain é"


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5 * 10**15, "5000.0 TB")]
)
def test_sizes_have_units(count: int, shown: str) -> None:
    assert size(count) == shown


class Balanced(html.parser.HTMLParser):
    """Parses HTML and fails on unclosed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_notebooks_get_tables(table: deltic.Table) -> None:
    snapshot = table.snapshot()
    for thing, *parts in (
        (table, table.uri),
        (snapshot, table.uri, "version", "1", "partitioned by", "m", "long"),
        (table.plan(filter="m = 1"), "filter", "m = 1", "1 of 3", "skipped by partition", "2"),
        (table.scan(columns=["v"], filter="v > 1"), "v > 1", "long", "Scan of 3 files"),
        (table.plan(filter="m = 1").explain(), "m = 1", "1 of 3 files (33.3 %)", "2 files by their partition values"),
        (table.history(), "2 commits", "WRITE", "CREATE TABLE AS SELECT", "partitionBy"),
        (table.check(), "nothing differs", "kind"),
        (deltic.Check(1, False, (deltic.Finding("checksum", "a<b", None),)), "something differs", "checksum", "a<b"),
        (table.vacuum(dry_run=True), "VACUUM (dry run)", "would be deleted", "168 hours"),
        (deltic.Commit(7, 2, 3, {"numOutputRows": 4000}), "Commit of version 7", "numOutputRows", "4,000"),
        (deltic.Commit(7, 0, 0), "Nothing committed: version 7"),
    ):
        page = Balanced(thing._repr_html_())
        assert page.tags | {"td"} == {"div", "strong", "table", "tr", "th", "td"}
        for part in parts:
            assert part in page.text


def test_changes_are_shown_in_a_notebook(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}), properties={"delta.enableChangeDataFeed": "true"})
    page = Balanced(deltic.Table(uri).changes(0)._repr_html_())
    for part in ("Changes", "0 to 0", "_change_type"):
        assert part in page.text


def test_a_history_is_a_list(table: deltic.Table) -> None:
    history = table.history()
    assert isinstance(history, list)
    assert pickle.loads(pickle.dumps(history)) == history == list(history)
    entry = {"version": 1, "timestamp": 1 << 60, "operation": ["<x>"], "operationParameters": [HOSTILE]}
    page = type(history)([entry])._repr_html_()
    assert page.isprintable()
    assert "&lt;x&gt;" in page
    assert f"{1 << 60} ms" in page


def test_results_of_maintenance_are_shown(table: deltic.Table) -> None:
    deltic.write(table, pa.table({"m": [1], "v": [9]}), mode="overwrite")
    dry = table.vacuum("1 hour", force=True, dry_run=True)
    result = table.vacuum(0, force=True)
    files = f"0 of {dry.files_seen} files would be deleted (0 B)"
    assert repr(dry) == f"VacuumResult(dry run)\n  files: {files}\n  retention: 1 hour"
    files = f"{result.files_deleted} of {result.files_seen} files deleted ({size(result.bytes_deleted)})"
    assert repr(result) == f"VacuumResult()\n  files: {files}\n  retention: 0 hours"
    assert files in Balanced(result._repr_html_()).text
    retained = table.purge("v = 9").retained
    assert retained is not None
    assert repr(retained).startswith("RetainedRows\n  still in: 3 versions, 2-4\n  data files: 1 file, ")
    assert "3 versions, 2-4" in Balanced(retained._repr_html_()).text


def test_a_count_of_one_is_singular(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1]}), properties={"delta.enableDeletionVectors": "true"})
    table = deltic.Table(uri)
    shown = [table.layout(), table.detail(), table.plan().explain(), table.optimize(dry_run=True), table.history()]
    shown += [table.purge("v = 1", dry_run=True), table.vacuum(dry_run=True), table.scan(), table.write_manifests()]
    deltic.write(table, pa.table({"v": [2]}))
    shown += [table.diff(0), table.restore(0, dry_run=True), table.optimize(), table.purge("v = 2")]
    several = re.compile(r"(?<![\d,.])1 (more |deleted )?(file|row|column|commit|version|manifest|hour)s\b")
    for thing in shown:
        pages = [repr(thing), str(thing)]
        pages += [thing._repr_html_()] if hasattr(thing, "_repr_html_") else []
        for page in pages:
            assert not several.search(page), page


def test_dir_lists_the_public_names() -> None:
    assert set(dir(deltic)) == {*deltic.__all__, "__version__"}


def test_a_plan_is_explained(table: deltic.Table) -> None:
    deltic.write(table, pa.table({"m": [1], "v": [50]}))
    plan = table.plan(columns=["v"], filter="m = 1 AND v > 10")
    explained = plan.explain()
    assert explained.files is None
    # One file with m = 1 has only 1 and 2 in v, and two files have another m.
    assert (explained.files_kept, explained.files_total) == (1, 4)
    assert explained.skipped == plan.skipped == {"partition": 2, "statistics": 1}
    assert (explained.bytes_kept, explained.bytes_total) == (plan.bytes_kept, plan.bytes_total)
    assert explained.columns == ["v"]
    text = repr(explained)
    for part in ("m = 1 AND v > 10", "1 of 4 files (25.0 %)", "1 file by their statistics", "version 2"):
        assert part in text
    files = plan.explain(files=True).files
    assert files is not None
    assert [row["max"]["v"] for row in files.to_pylist() if row["kept"]] == [50]
    assert sorted(row["partition"]["m"] for row in files.to_pylist() if not row["kept"]) == [1, 2, 3]
    assert plan.explain(files=True).to_dict()["files"] == files.to_pylist()
    with pytest.raises(deltic.InvalidInputError, match="files must be True or False"):
        plan.explain(files=1)  # type: ignore[arg-type]


def test_an_explanation_counts_deleted_rows(uri: str) -> None:
    deltic.write(uri, pa.table({"v": [1, 2, 3]}), properties={"delta.enableDeletionVectors": "true"})
    deltic.Table(uri).delete("v = 2")
    explained = deltic.Table(uri).plan().explain()
    assert explained.deleted_rows == 1
    assert "1 row that deletion vectors take out" in repr(explained)


def test_showing_a_table_or_snapshot_sends_no_request(table: deltic.Table) -> None:
    snapshot = table.snapshot()
    before = table.request_counts()
    for thing in (table, snapshot):
        assert repr(thing)
        assert thing._repr_html_()
    assert table.request_counts() == before


def test_hostile_names_are_escaped_wherever_they_are_shown(uri: str) -> None:
    name = "<script>&\x1b[31m\u202e"
    deltic.write(uri, pa.table({name: [1]}))
    table = deltic.Table(uri)
    snapshot, scan = table.snapshot(), table.scan()
    for thing in (table, snapshot, scan, scan.plan, scan.plan.explain()):
        assert all(line.isprintable() for line in repr(thing).split("\n")), thing
        page = thing._repr_html_()
        assert page.isprintable(), thing
        assert "<script>" not in page
    assert "\\x1b" in repr(scan)
    assert "&lt;script&gt;" in scan._repr_html_()
    finding = deltic.Finding("checksum", f"of {HOSTILE}", f"a{HOSTILE}.json")
    checked = deltic.Check(1, False, (finding,))
    assert str(finding).isprintable()
    assert repr(finding).isprintable()
    assert all(line.isprintable() for line in repr(checked).split("\n"))
    assert len(repr(checked).split("\n")) == 2


@pytest.mark.slow
def test_a_repr_is_bounded(uri: str) -> None:
    deltic.create(uri, pa.schema([(f"column_{at}", pa.int64()) for at in range(3000)]))
    table = deltic.Table(uri)
    scan = table.scan()
    assert repr(scan).endswith("'column_9', … 2,990 more], files=0)")
    assert len(repr(scan)) < 300
    assert len(scan._repr_html_()) < 10_000
    assert len(table.snapshot()._repr_html_()) < 10_000
    assert "2,950 more columns" in scan._repr_html_()
    with table.transaction() as tx:
        assert "2,990 more" in repr(tx.scan())


def test_a_plan_shows_sizes_with_units_and_has_exact_ones(table: deltic.Table) -> None:
    plan = table.plan(filter="m = 1")
    assert re.fullmatch(
        r"Plan\(files=1/3, bytes=[\d.]+ k?B/[\d.]+ k?B, skipped=\{'partition': 2, 'statistics': 0\}\)", repr(plan)
    )
    assert plan.bytes_total == sum(table.files().read_all()["size"].to_pylist())


def test_a_transaction_shows_its_state(table: deltic.Table) -> None:
    transaction = table.transaction(operation="MOVE", app_id="a", app_version=1)
    head = f"Transaction({table.uri!r}, operation='MOVE', "
    assert repr(transaction) == head + "not begun)"
    with transaction as tx:
        assert repr(tx) == head + "running)"
        assert isinstance(tx.snapshot, deltic.Snapshot)
        tx.append(pa.table({"m": [1], "v": [1]}))
    assert repr(transaction) == head + "committed, version=2)"
    with table.transaction(operation="MOVE", app_id="a", app_version=1) as again:
        pass
    assert repr(again) == head + "replayed, version=2)"
    with pytest.raises(RuntimeError), table.transaction(operation="MOVE") as failed:
        raise RuntimeError
    assert repr(failed) == head + "ended without a commit)"


def test_scans_and_plans_pickle_with_their_version(table: deltic.Table) -> None:
    scan = table.scan(columns=["v"], filter="m < 3")
    plan, everything = table.plan(filter="m = 1"), table.snapshot(0).scan()
    kept = pickle.dumps((scan, plan, everything))
    deltic.write(table, pa.table({"m": [1], "v": [9]}))
    there, of_files, of_all = pickle.loads(kept)
    assert sorted(there.to_arrow()["v"].to_pylist()) == [1, 2, 3]
    assert there.schema == scan.schema
    assert repr(there) == repr(scan)
    assert of_files.tasks == plan.tasks
    assert repr(of_files) == repr(plan)
    assert sorted(of_all.to_arrow()["v"].to_pylist()) == [1, 2, 3]
    assert pickle.loads(pickle.dumps(there.plan)).files_kept == scan.plan.files_kept
    limited = pickle.loads(pickle.dumps(scan.limit(2)))
    assert repr(limited) == repr(scan.limit(2))
    assert limited.to_arrow().num_rows == limited.count() == 2


def test_storage_options_pickle_with_a_scan(tmp_path: Path) -> None:
    table = deltic.Table(tmp_path / "t", {"timeout": "7s"})
    deltic.write(table, pa.table({"v": [1]}))
    scan = pickle.loads(pickle.dumps(table.scan()))
    assert scan._query.snapshot._table.storage_options == {"timeout": "7s"}


def test_changes_pickle_with_their_versions(uri: str) -> None:
    recorded = {"delta.enableChangeDataFeed": "true"}
    deltic.write(uri, pa.table({"v": [1]}), properties=recorded)
    table = deltic.Table(uri)
    changes = table.changes(start="1999-01-01", columns=["v", "_change_type"], filter="v < 3")
    deltic.write(table, pa.table({"v": [2]}))
    there = pickle.loads(pickle.dumps(changes))
    assert there.versions == changes.versions == range(0, 1)
    assert there.to_arrow() == changes.to_arrow()
    time.sleep(0.02)
    deltic.write(table, pa.table({"v": [3]}))
    between = np.datetime64(table.history(1)[0]["timestamp"] - 2, "ms")
    assert not table.changes(start=between, end=between).versions
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(table.changes(start=between, end=between))


THINGS = {"Table": TABLES, "Snapshot": SNAPSHOTS, "Scan": SCANS}


def test_names_of_other_clients_get_hints(table: deltic.Table) -> None:
    snapshot = table.snapshot()
    things: dict[str, Any] = {"Table": table, "Snapshot": snapshot, "Scan": snapshot.scan()}
    for kind, known in THINGS.items():
        for name, message in known.items():
            assert not hasattr(things[kind], name), f"{kind} has {name} now: remove its hint"
            with pytest.raises(AttributeError, match=re.escape(f"{kind} has no attribute {name!r}: {message}")):
                getattr(things[kind], name)
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing_like_it'$"):
            _ = things[kind].nothing_like_it
    for name, message in TOP.items():
        assert not hasattr(deltic, name), f"deltic has {name} now: remove its hint"
        with pytest.raises(AttributeError, match=re.escape(message)):
            getattr(deltic, name)
    with pytest.raises(AttributeError, match=r"module 'deltic' has no attribute 'nothing_like_it'$"):
        _ = deltic.nothing_like_it


@pytest.mark.parametrize("kind", [*THINGS, "deltic"])
def test_hints_name_existing_pages_and_attributes(kind: str, root: Path) -> None:
    for hint in {**THINGS, "deltic": TOP}[kind].values():
        for page in re.findall(r"docs/[\w-]+\.md", hint):
            assert (root / page).exists()
        named = re.findall(r"`((?:deltic|Table|Snapshot|Scan|Transaction)[\w.]*)", hint)
        assert named or hint.startswith(("deltic does not", "DuckDB reads", "checkpoints follow", "give `")), hint
        for path in named:
            thing: Any = deltic
            for part in path.removeprefix("deltic").strip(".").split("."):
                if part and not (part == "spark" and thing is deltic):
                    thing = getattr(thing, part)
                elif part == "spark":
                    break


def test_hints_do_not_affect_copy_and_hasattr(table: deltic.Table) -> None:
    import copy

    assert copy.copy(table) == table
    assert copy.deepcopy(table) == table
    assert not hasattr(table, "__arrow_c_stream__")
    assert getattr(table, "upsert", None) is None
