"""`Table.layout`: sizes, skipping, partitions and vectors, compared with known numbers and a simple model."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_display import Balanced

import deltic
from deltic.cli import main


def appended(uri: str, *files: dict[str, list[Any]], **options: Any) -> deltic.Table:
    """A table with one file, and one commit, for each dict of columns."""
    for at, rows in enumerate(files):
        deltic.write(uri, pa.table(rows), **({} if at else options))
    return deltic.Table(uri)


def by_column(layout: deltic.Layout) -> dict[str, dict[str, Any]]:
    return {row["column"]: row for row in layout.to_arrow().to_pylist()}


def test_skipping_by_hand(uri: str) -> None:
    # Ranges of v: [0, 10], [5, 15], [20, 30], and [10, 10].
    table = appended(uri, {"v": [0, 10]}, {"v": [5, 15]}, {"v": [20, 30]}, {"v": [10]})
    found = by_column(table.layout())["v"]
    # The depth at each bound: 0, 10, 5, 15, 20, 30, 10, 10.
    depths = [1, 3, 2, 1, 1, 1, 3, 3]
    assert found["depth"] == sum(depths) / 8 == 1.875
    assert found["max_depth"] == 3
    # The first, second and fourth range overlap each other.
    assert found["overlaps"] == (2 + 2 + 0 + 2) / 4
    assert (found["kind"], found["files_with_bounds"]) == ("statistics", 4)
    assert (found["files_read"], found["share_skipped"]) == (1.875, 1 - 1.875 / 4)


def test_files_without_bounds_are_read_and_those_of_nulls_are_not(uri: str) -> None:
    table = appended(uri, {"v": [1.0, 2.0]}, {"v": [5.0, float("nan")]}, {"v": pa.array([None, None], pa.float64())})
    found = by_column(table.layout())["v"]
    assert (found["files_with_bounds"], found["depth"], found["files_read"]) == (1, 1.0, 2.0)
    assert found["share_skipped"] == pytest.approx(1 / 3)


def test_a_column_without_any_bound(uri: str) -> None:
    found = by_column(appended(uri, {"v": [float("nan")]}).layout())["v"]
    assert found["depth"] is found["max_depth"] is found["overlaps"] is None
    assert (found["files_read"], found["share_skipped"]) == (1.0, 0.0)


def model(ranges: list[tuple[Any, Any]]) -> tuple[float, int, float]:
    points = [point for ends in ranges for point in ends]
    depths = [sum(low <= point <= high for low, high in ranges) for point in points]
    others = [sum(a <= d and c <= b for c, d in ranges) - 1 for a, b in ranges]
    return sum(depths) / len(depths), max(depths), sum(others) / len(others)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_ranges_match_a_simple_model(uri: str, seed: int) -> None:
    chosen = random.Random(seed)
    files = []
    for _ in range(12):
        numbers = [chosen.randint(0, 12), chosen.randint(0, 12)]
        files.append({"v": numbers, "s": [chr(97 + number) for number in numbers], "f": [n / 4 for n in numbers]})
    layout = appended(uri, *files).layout()
    wanted = model([(min(file["v"]), max(file["v"])) for file in files])
    for column in ("v", "f"):
        found = by_column(layout)[column]
        assert (found["depth"], found["max_depth"], found["overlaps"]) == pytest.approx(wanted)
    # These strings are too short for truncated bounds.
    assert by_column(layout)["s"]["depth"] == pytest.approx(wanted[0])


def test_sizes_partitions_and_vectors(uri: str) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    rows = {"p": ["a"] * 3 + ["b"] + [None], "v": [1, 2, 3, 4, 5]}
    table = appended(uri, rows, {"p": ["a"], "v": [6]}, partition_by=["p"], properties=properties)
    table.delete("v = 2")
    layout = table.layout(small_file_size=10)
    sizes = sorted(table.files().read_all()["size"].to_pylist())
    assert (layout.version, layout.num_files, layout.num_rows, layout.size_in_bytes) == (2, 4, 5, sum(sizes))
    ends = (layout.min_file_size, layout.median_file_size, layout.max_file_size)
    assert ends == (sizes[0], sizes[1], sizes[-1])
    assert (layout.small_files, layout.small_file_bytes) == (0, 0)
    assert table.layout(small_file_size=sizes[-1]).small_files == sum(size < sizes[-1] for size in sizes)
    assert (layout.files_with_vectors, layout.deleted_rows) == (1, 1)
    assert sum(layout.histogram["files"].to_pylist()) == 4
    assert layout.histogram.slice(0, 1).to_pylist() == [
        {"at_least": 0, "below": 10_000, "files": 4, "bytes": sum(sizes)}
    ]
    assert layout.partitions is not None
    found = {row["partition"]["p"]: (row["files"], row["rows"]) for row in layout.partitions.to_pylist()}
    assert found == {"a": (2, 3), "b": (1, 1), None: (1, 1)}
    by_bytes = layout.partitions["bytes"].to_pylist()
    assert by_bytes == sorted(by_bytes, reverse=True)
    assert layout.partition_skew == by_bytes[0] / by_bytes[1]
    # The values of `p` are in two, two and one of the files. No condition reads the null partition.
    column = by_column(layout)["p"]
    assert (column["kind"], column["depth"], column["max_depth"]) == ("partition", (2 + 2 + 1) / 3, 2)
    assert layout.optimize is not None
    gain = table.optimize(dry_run=True)
    assert (layout.optimize.files_to_rewrite, layout.optimize.expected_files) == (
        gain.files_to_rewrite,
        gain.expected_files,
    )


def test_an_empty_table(uri: str) -> None:
    deltic.create(uri, pa.schema([("p", pa.string()), ("v", pa.int64())]), partition_by=["p"])
    layout = deltic.Table(uri).layout()
    assert (layout.num_files, layout.size_in_bytes, layout.num_rows, layout.max_file_size) == (0, 0, 0, None)
    assert layout.partitions is not None
    assert (layout.partitions.num_rows, layout.partition_skew) == (0, None)
    assert by_column(layout)["v"]["share_skipped"] is None
    assert "0 files" in repr(layout)
    assert Balanced(layout._repr_html_())


def test_columns_are_chosen_by_their_paths(uri: str) -> None:
    table = appended(uri, {"p": [1], "s": [{"a.b": 1, "c": 2}], "v": [1]}, partition_by=["p"])
    assert list(by_column(table.layout())) == ["p", "s.`a.b`", "s.c", "v"]
    assert list(by_column(table.layout(["v", "s.`a.b`"]))) == ["v", "s.`a.b`"]
    with pytest.raises(deltic.InvalidInputError, match="column `w` has no statistics"):
        table.layout(["w"])
    with pytest.raises(deltic.InvalidInputError, match="small_file_size"):
        table.layout(small_file_size=0)
    with pytest.raises(deltic.InvalidInputError, match="columns must be a list"):
        table.layout("v")


def test_a_table_that_cannot_be_written_has_a_layout(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(uri, {"v": [1]})
    refused = deltic.UnsupportedFeatureError("no writer for `magic`")
    monkeypatch.setattr(deltic.Table, "optimize", lambda self, **_: (_ for _ in ()).throw(refused))
    layout = table.layout()
    assert (layout.optimize, layout.optimize_refused) == (None, "no writer for `magic`")
    assert "refused: no writer for `magic`" in repr(layout)


def test_the_optimize_estimate_is_of_the_same_version(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(uri, {"v": [1]})
    optimize = deltic.Table.optimize

    def beside_a_writer(self: deltic.Table, **options: bool) -> deltic.OptimizeResult:
        deltic.write(uri, pa.table({"v": [2]}))
        found = optimize(self, **options)
        deltic.write(uri, pa.table({"v": [3]}))
        return found

    monkeypatch.setattr(deltic.Table, "optimize", beside_a_writer)
    layout = table.layout()
    assert layout.optimize is not None
    assert (layout.version, layout.num_files) == (layout.optimize.read_version, layout.optimize.files_total) == (1, 2)


def test_no_table(uri: str) -> None:
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(uri).layout()


def test_what_is_shown_is_escaped(uri: str) -> None:
    name = "<script>&\x1b[31m"
    layout = appended(uri, {name: [1], "p": [name]}, partition_by=["p"]).layout()
    page = layout._repr_html_()
    assert Balanced(page)
    assert page.isprintable()
    assert "<script>" not in page
    assert all(line.isprintable() for line in repr(layout).split("\n"))


@pytest.mark.slow
def test_the_command_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    appended(uri, {"v": [0, 10]}, {"v": [5, 15]})
    assert main(["layout", uri]) == 0
    printed = capsys.readouterr().out
    assert "skipped by v" in printed
    assert "2 files" in printed
    assert main(["layout", uri, "--json", "--columns", "v", "--small-file-size", "10"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["num_files"], output["small_files"], output["partitions"]) == (2, 0, None)
    assert output["columns"][0]["depth"] == 1.5
    assert output["optimize"]["files_to_rewrite"] == 2
    assert main(["layout", uri, "--columns", "w"]) == 1
    assert "`w`" in capsys.readouterr().err
    assert main(["layout", uri + "-not"]) == 1


@pytest.mark.slow
def test_a_plot(uri: str, tmp_path: Path) -> None:
    figure = appended(uri, {"p": ["$x$"], "v": [1]}, partition_by=["p"]).layout().plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["files by size", "share of files skipped", "bytes by partition"]
    figure.savefig(tmp_path / "layout.png")
    assert (tmp_path / "layout.png").stat().st_size > 1000


def test_a_plot_without_matplotlib_says_what_to_install(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = appended(uri, {"v": [1]}).layout()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"deltic\[plot\]"):
        layout.plot()
