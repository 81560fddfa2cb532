"""`Table.report`: the content of the page, that it is self-contained, and its layout in a browser."""

import html.parser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from test_display import Balanced

import deltic
from deltic.cli import main

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&\x1b[31m\u202e"


@pytest.fixture
def flights(uri: str) -> deltic.Table:
    rows = {"month": [1, 1, 2], "km": [10, 20, 30]}
    vectors = {"delta.enableDeletionVectors": "true"}
    deltic.write(uri, pa.table(rows), partition_by=["month"], name="flights", properties=vectors)
    for _ in range(12):
        deltic.write(uri, pa.table({"month": [1, 2], "km": [40, 50]}))
    table = deltic.Table(uri)
    table.delete("km = 10")
    return table


class Page(html.parser.HTMLParser):
    """The rows of HTML tables by their first cell, and all tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: dict[str, list[str]] = {}
        self.cells: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.cells = []
        elif tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr" and self.cells:
            self.rows.setdefault(self.cells[0], self.cells[1:])

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.cells:
            self.cells[-1] += data


def shown(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    assert Balanced(text)
    return Page(text)


@pytest.mark.slow
def test_the_content_of_the_page(flights: deltic.Table, tmp_path: Path) -> None:
    path = flights.report(tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    page = shown(path)
    text = " ".join(page.text)
    layout = flights.layout()
    for part in ("flights", flights.uri, "Health", "History", "File sizes", "Skipping", "month=1", "month=2"):
        assert part in text, part
    assert "26 of 26 files are below 16.0 MB. OPTIMIZE would leave 24 files fewer." in text
    assert "1 of 26 files has one, with 1 deleted row, 3.7 % of all." in text
    assert "14 commits by the time" in text
    assert page.rows["13"][1] == "DELETE"
    assert page.rows["0"][1] == "CREATE TABLE AS SELECT"
    # Each month has 13 of the 26 files.
    assert page.rows["month"] == ["partition", "50.0 %, reads 13.0 of 26 files", "13.0, at most 13", "12.0"]
    assert layout.optimize is not None
    assert page.rows["OPTIMIZE: would rewrite"] == [dict(layout.optimize.lines())["would rewrite"]]
    assert page.rows["VACUUM: files"] == [str(flights.vacuum(dry_run=True))]
    assert page.rows["VACUUM: retention"] == ["168 hours"]
    assert page.rows["delta.enableDeletionVectors"] == ["true"]


@pytest.mark.slow
def test_a_page_is_of_one_version(flights: deltic.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = flights.snapshot().version
    check = deltic.Table.check

    def beside_a_writer(self: deltic.Table, version: int) -> deltic.Check:
        deltic.write(flights.uri, pa.table({"month": [3], "km": [60]}))
        return check(self, version)

    monkeypatch.setattr(deltic.Table, "check", beside_a_writer)
    page = shown(flights.report(tmp_path / "report.html"))
    text = " ".join(page.text)
    assert flights.snapshot().version == version + 1
    assert f"Version {version}, looked at" in text
    assert str(version) in page.rows
    assert str(version + 1) not in page.rows
    assert "26 of 26 files are below" in text


@pytest.mark.parametrize("vacuum", ["full", "lite", None])
def test_the_page_has_the_requested_checks(uri: str, tmp_path: Path, vacuum: Literal["full", "lite"] | None) -> None:
    deltic.write(uri, pa.table({"v": [1]}))
    text = deltic.Table(uri).report(tmp_path / "report.html", vacuum=vacuum).read_text(encoding="utf-8")
    assert ("folder listed for VACUUM" in text) == (vacuum == "full")
    assert ("Only the log was read." in text) == (vacuum != "full")


@pytest.mark.slow
def test_the_report_changes_nothing(flights: deltic.Table, tmp_path: Path) -> None:
    before = sorted(str(path) for path in Path(flights.uri).rglob("*"))
    flights.report(tmp_path / "report.html")
    assert sorted(str(path) for path in Path(flights.uri).rglob("*")) == before


@pytest.mark.slow
def test_the_page_is_self_contained(flights: deltic.Table, tmp_path: Path) -> None:
    path = flights.report(tmp_path / "report.html")
    page, text = shown(path), path.read_text()
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "a", "audio", "video"}
    assert not page.attributes & {"src", "href", "srcset", "action", "data", "xlink:href"}
    assert not [name for name in page.attributes if name.startswith("on")]
    assert not re.search(r"https?:|//|@import|url\(", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text


def test_names_and_values_of_a_table_are_escaped(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pa.table({f"a{HOSTILE}": [1], "p": [HOSTILE]})
    properties = {f"x{HOSTILE}": HOSTILE, "delta.columnMapping.mode": "name"}
    deltic.write(uri, data, name=HOSTILE, description=HOSTILE, partition_by=["p"], properties=properties)
    table = deltic.Table(uri)
    with table.transaction(operation=HOSTILE) as tx:
        tx.append(data)
    entries = [{**entry, "operationMetrics": {HOSTILE: HOSTILE}} for entry in table.history()]
    monkeypatch.setattr(deltic.Table, "history", lambda self, limit: entries)
    path = table.report(tmp_path / "report.html")
    page, text = shown(path), path.read_text()
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert "onerror" not in page.attributes
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_secrets_among_properties_are_not_on_the_page(uri: str, tmp_path: Path) -> None:
    keys = ["fs.s3a.secret.key", "my.Password", "auth.token", "credentials", "fs.s3a.access.key", "accessKey"]
    properties = {key: f"hidden{at}" for at, key in enumerate(keys)}
    deltic.write(uri, pa.table({"v": [1]}), properties={**properties, "owner": "somebody"})
    text = Path(deltic.Table(uri).report(tmp_path / "page.html")).read_text(encoding="utf-8")
    assert "hidden" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert all(key in text for key in [*keys, "somebody"])


def test_settings_of_the_store_are_not_on_the_page(tmp_path: Path) -> None:
    deltic.write(tmp_path / "t", pa.table({"v": [1]}))
    table = deltic.Table(tmp_path / "t", {"timeout": "7777s"})
    assert "7777s" not in table.report(tmp_path / "report.html").read_text()


def test_tables_with_little_in_them(uri: str, tmp_path: Path) -> None:
    deltic.create(uri, pa.schema([("v", pa.int64())]))
    text = " ".join(shown(deltic.Table(uri).report(tmp_path / "report.html")).text)
    assert "The table has no files." in text
    deltic.write(uri + "2", pa.table({"l": [[1]]}))
    text = " ".join(shown(deltic.Table(uri + "2").report(tmp_path / "report.html", vacuum=None)).text)
    assert "No column has bounds or partition values." in text
    # Absent here; `test_the_content_of_the_page` checks that the word is present otherwise.
    assert "VACUUM" not in text


@pytest.mark.slow
def test_problems_of_a_table_are_on_the_page(
    flights: deltic.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = deltic.Finding("checksum", "numFiles is <5>", None)
    monkeypatch.setattr(deltic.Table, "check", lambda self, version: deltic.Check(13, False, (finding,)))
    refused = deltic.UnsupportedFeatureError("no writer for `magic`")
    monkeypatch.setattr(deltic.Table, "vacuum", lambda self, **_: (_ for _ in ()).throw(refused))
    entries = [{"version": 1, "timestamp": 1 << 60, "operation": ["x"], "operationMetrics": 7}]
    monkeypatch.setattr(deltic.Table, "history", lambda self, limit: entries)
    page = shown(flights.report(tmp_path / "report.html"))
    assert "checksum: numFiles is <5>" in " ".join(page.text)
    assert page.rows["VACUUM"] == ["refused: no writer for `magic`"]
    assert page.rows["1"] == [f"{1 << 60} ms", "?", ""]


@pytest.mark.slow
def test_wrong_arguments(flights: deltic.Table, tmp_path: Path) -> None:
    with pytest.raises(deltic.InvalidInputError, match="vacuum must be"):
        flights.report(tmp_path / "r.html", vacuum="all")  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="path must be a path, not int"):
        flights.report(7)  # type: ignore[arg-type]
    with pytest.raises(deltic.InvalidInputError, match="cannot be written"):
        flights.report(tmp_path / "nowhere" / "r.html")
    with pytest.raises(deltic.TableNotFoundError):
        deltic.Table(tmp_path / "no-table").report(tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_the_command_line(flights: deltic.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    assert main(["report", flights.uri, "-o", str(path), "--vacuum", "none"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert main(["report", flights.uri, "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "bytes": path.stat().st_size}
    assert main(["report", flights.uri, "-o", str(tmp_path / "nowhere" / "r.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.slow
def test_in_a_browser(uri: str, tmp_path: Path, width: int) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        assert not os.environ.get("DELTIC_CHROMIUM_REQUIRED"), "Chromium is not installed"
        pytest.skip("Chromium is not installed")
    long = "a_long_name_" * 12
    for at in range(3):
        data = pa.table({long: [1], "p": [HOSTILE], **{f"c{at}": [1] for at in range(30)}})
        deltic.write(uri, data, name=None if at else long)
    path = deltic.Table(uri).report(tmp_path / "report.html")
    # The page's policy forbids scripts, so the script that measures must be allowed.
    measure = (
        "<script>document.title = JSON.stringify({width: innerWidth, needs: document.documentElement.scrollWidth, "
        "bars: [...document.querySelectorAll('.deltic-bars rect')].filter(r => r.getBoundingClientRect().width > 20)"
        ".length, scripts: document.scripts.length})</script>"
    )
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text())
    # A browser window is at least 500 pixels wide, a frame may be narrower.
    (tmp_path / "measured.html").write_text(text.replace("</body>", f"{measure}</body>"))
    frame = (
        f'<iframe id="f" src="measured.html" style="width:{width}px;height:900px;border:0"></iframe>'
        "<script>f.onload = () => { document.title = f.contentDocument.title }</script>"
    )
    (tmp_path / "frame.html").write_text(f"<!DOCTYPE html><html><body>{frame}</body></html>")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    arguments = [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    result = subprocess.run(
        [browser, *options, *arguments, (tmp_path / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = re.search(r"<title>(\{.*?\})</title>", result.stdout)
    assert title, result.stdout[-500:] + result.stderr[-500:]
    found = json.loads(title[1])
    assert found["width"] == width
    assert found["needs"] <= width, "the page is wider than the window"
    assert found["bars"] >= 1
    assert found["scripts"] == 1
