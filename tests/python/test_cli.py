"""The command line: output and errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltic
from deltic.cli import main
from deltic.cli.parser import command_parser


@pytest.fixture
def table(uri: str) -> str:
    deltic.write(uri, pa.table({"month": [1, 2], "km": [1, 3]}), partition_by=["month"], name="trips")
    deltic.write(uri, pa.table({"month": [2], "km": [9]}))
    return uri


def test_show(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", table]) == 0
    printed = capsys.readouterr().out
    for part in ("trips", "version         1", "files           3", "partitioned by  month", "km", "long"):
        assert part in printed
    assert main(["show", table, "--version", "0"]) == 0
    assert "files           2" in capsys.readouterr().out


@pytest.mark.slow
def test_files(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", table, "--filter", "month = 2 AND km > 5"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "month=2/" in line


def test_history(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", table]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["history", table, "--limit", "1", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["version"], entry["operationMetrics"]["numOutputRows"]) == (1, "1")


def test_history_has_metrics(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    deltic.Table(table).delete("km = 1")
    assert main(["history", table, "--limit", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    metrics = deltic.Table(table).history(1)[0]["operationMetrics"]
    assert {"numDeletedRows": "1", "numAddedFiles": "0"}.items() <= metrics.items()
    assert "DELETE" in line
    assert "numDeletedRows=1" in line
    assert "numAddedFiles" not in line
    assert "Ms=" not in line
    assert "numDeletedRows=1" in deltic.Table(table).history()._repr_html_()  # type: ignore[attr-defined]


def test_history_of_other_writers(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        {"version": 5, "timestamp": 0, "operation": None, "operationParameters": None},
        {"version": 4, "timestamp": 1 << 60, "operation": ["MERGE"], "operationParameters": ["a", 1]},
        {"version": 3, "timestamp": -(1 << 60), "operation": 7, "operationParameters": "in words"},
    ]
    monkeypatch.setattr(deltic.Table, "history", lambda self, limit: entries)
    assert main(["history", table]) == 0
    five, four, three = capsys.readouterr().out.splitlines()
    assert "1970-01-01 00:00:00 UTC  ?" in five
    assert str(1 << 60) in four
    assert "MERGE" in four
    assert "in words" in three


@pytest.mark.parametrize("arguments", [["show", "--version", "-1"], ["history", "--limit", "-1"]])
def test_numbers_below_zero(table: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command, *rest = arguments
    assert main([command, table, *rest]) == 1
    assert "must be a whole number from 0" in capsys.readouterr().err


def test_plan(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", table, "month = 2"]) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 files" in printed
    assert "1 file by partition" in printed
    assert main(["plan", table, "month = 2", "--files"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("reads  ") == 3
    assert printed.count("skips  ") == 1
    assert main(["plan", table, "month = 2", "--files", "--json"]) == 0
    summary, *files = lines(capsys)
    assert summary["files_kept"] == sum(bool(file["kept"]) for file in files) == 2


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"deltic \d+\.\d+\S*\n", capsys.readouterr().out)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", table, "--json"]) == 0
    (shown,) = lines(capsys)
    assert shown["version"] == 1
    assert shown["name"] == "trips"
    assert shown["files"] == 3
    assert shown["partition_columns"] == ["month"]
    assert shown["schema"] == [{"name": n, "type": "long", "nullable": True} for n in ("month", "km")]
    assert shown["protocol"] == deltic.Table(table).snapshot().protocol
    assert main(["files", table, "--json", "--filter", "month = 2"]) == 0
    files = lines(capsys)
    assert {file["partition"]["month"] for file in files} == {2}
    assert sorted(files[0]) == ["modification_time", "num_records", "partition", "path", "size"]
    assert main(["plan", table, "month = 2", "--json"]) == 0
    (plan,) = lines(capsys)
    assert (plan["files_kept"], plan["files_total"], plan["skipped"]) == (2, 3, {"partition": 1, "statistics": 0})
    assert main(["check", table, "--json"]) == 0
    assert lines(capsys) == [{"version": 1, "ok": True, "findings": []}]
    assert main(["history", table, "--json"]) == 0
    assert [entry["version"] for entry in lines(capsys)] == [1, 0]


@pytest.mark.slow
def test_a_limited_history_is_marked(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(22):
        deltic.write(uri, pa.table({"a": [1]}))
    for arguments, shown, more in (
        ([], 20, True),
        (["--limit", "21"], 21, True),
        (["--limit", "22"], 22, False),
        (["--limit", "0"], 0, True),
        (["--all"], 22, False),
    ):
        assert main(["history", uri, *arguments]) == 0
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == shown
        assert ("there are more: --limit N or --all" in captured.err) == more


def test_check(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", table, "--files"]) == 0
    assert "version 1: nothing differs" in capsys.readouterr().out
    path = deltic.Table(table).files().read_all()["path"][0].as_py()
    (Path(table) / path).unlink()
    assert main(["check", table, "--files"]) == 1
    assert "data_file:" in capsys.readouterr().out


@pytest.mark.slow
def test_no_control_character_of_a_table_reaches_the_terminal(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b]0:title\x07\x1b[31mred\x9b2J\u202e\u2066\x7f\nforged"
    data = pa.table({f"a{hostile.replace(chr(10), '')}": [1], "p": [hostile]})
    deltic.write(uri, data, name=hostile, partition_by=["p"], properties={f"x{hostile}": hostile})
    entry = {"version": 1, "timestamp": 0, "operation": hostile, "operationParameters": {hostile: hostile}}
    monkeypatch.setattr(deltic.Table, "history", lambda self, limit: [entry])
    for command in ("show", "files", "history", "plan", "check"):
        for more in ([], ["--json"]):
            assert main([command, uri, *more]) == 0
            captured = capsys.readouterr()
            for line in (captured.out + captured.err).splitlines():
                assert line.isprintable(), (command, more, line)
                assert not line.startswith("forged")
    for arguments in (["show", uri, "--timestamp", hostile], ["files", uri, "--filter", hostile], ["show", hostile]):
        assert main(arguments) == 1
        for line in capsys.readouterr().err.split("\n"):
            assert line.isprintable(), line
            assert not line.startswith("forged")


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_letter_gets_its_escape(uri: str) -> None:
    deltic.write(uri, pa.table({"größe": [1]}), name="日本")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "deltic", "show", uri]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "gr\\xf6\\xdfe" in shown.stdout


def test_ctrl_c_prints_no_traceback(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: deltic.Table, limit: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(deltic.Table, "history", interrupted)
    assert main(["history", table]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(uri: str) -> None:
    deltic.write(uri, pa.table({"p": list(range(2000)), "v": list(range(2000))}), partition_by=["p"])
    command = f"{sys.executable} -m deltic files {uri} | head -1"
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert shown.stderr == ""
    assert len(shown.stdout.splitlines()) == 1


def test_errors_are_one_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", uri]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("deltic: ")
    assert captured.err.count("\n") == 1


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.slow
def test_messages_name_options_rather_than_arguments(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    for message, arguments in {
        "deltic: --full clusters all files": ["optimize", table, "--full"],
        "--zorder-by names the column `km` twice": ["optimize", table, "--zorder-by", "km,km"],
        "deltic: --max-tasks must be a whole number from 1": ["optimize", table, "--max-tasks", "0"],
        "pass --force": ["vacuum", table, "--retention", "1"],
        "deltic: FROM 'soon' is not ISO 8601": ["diff", table, "soon"],
        "deltic: TO 'soon' is not ISO 8601": ["diff", table, "0", "soon"],
    }.items():
        assert message in output(capsys, *arguments)
    # The name of a column is not replaced by an option.
    assert "`xmax_tasks`" in output(capsys, "files", table, "--filter", "xmax_tasks = 1")


@pytest.mark.slow
def test_errors_of_a_damaged_table_recommend_repair(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in range(12):
        deltic.write(uri, pa.table({"v": [value]}))
    for path in Path(uri, "_delta_log").glob("*.checkpoint*"):
        path.write_bytes(b"no checkpoint")
    advice = f"`deltic repair --dry-run {uri}` reports what is damaged and what can be repaired"
    assert advice in output(capsys, "check", uri)
    assert main(["repair", uri]) == 0
    assert main(["check", uri]) == 0
    for path in Path(uri).glob("*.parquet"):
        path.unlink()
    assert advice in output(capsys, "clone", uri, str(tmp_path / "copy"), "--deep")
    assert "deltic repair" not in output(capsys, "show", str(tmp_path / "none"))


@pytest.mark.parametrize("arguments", [[], ["dance"], ["show"], ["show", "x", "--storage", "novalue"]])
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def parquet_files(table: str) -> str:
    folder = Path(table).with_name("parquet")
    folder.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), folder / "part.parquet")
    return str(folder)


GOOD: dict[str, list[str]] = {
    "show": [],
    "detail": ["--version", "0"],
    "files": ["--filter", "month = 2"],
    "history": ["--limit", "1"],
    "plan": ["month = 2"],
    "layout": ["--columns", "km"],
    "diff": ["0"],
    "report": ["--output", "{table}.html"],
    "check": ["--files"],
    "manifests": [],
    "optimize": ["--where", "month = 2"],
    "purge": ["--where", "km = 1"],
    "repair": ["--recover-to", "1"],
    "vacuum": ["--retention", "0", "--force", "--no-log"],
    "convert": [],
    "restore": ["--version", "0"],
    "clone": ["{table}-copy", "--deep"],
}
BAD: dict[str, tuple[list[str], str]] = {
    "show": (["--version", "9"], "no version 9"),
    "detail": (["--version", "9"], "no version 9"),
    "files": (["--filter", "km ="], "filter"),
    "history": (["--limit", "-1"], "from 0"),
    "plan": (["none = 1"], "none"),
    "layout": (["--columns", "none"], "none"),
    "diff": (["9"], "no version 9"),
    "report": (["--output", "{table}/none/page.html"], "page.html"),
    "check": (["--version", "9"], "no version 9"),
    "manifests": (["--storage", "none=1"], "none"),
    "optimize": (["--where", "km = 1"], "km"),
    "purge": (["--where", "none = 1"], "none"),
    "repair": (["--recover-to", "0"], "version 1, the newest, can be read"),
    "vacuum": (["--retention", "soon"], "soon"),
    "convert": (["--partition", "month=none"], "none"),
    "restore": (["--version", "9"], "no version 9"),
    "clone": (["{table}/below"], "above or below"),
}
CHANGING = {"manifests", "optimize", "purge", "repair", "vacuum", "convert", "restore", "clone"}


def call(command: str, table: str, arguments: list[str]) -> list[str]:
    return [command, table, *(argument.replace("{table}", table) for argument in arguments)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_command_is_tested() -> None:
    (commands,) = [action.choices for action in command_parser()._actions if isinstance(action.choices, dict)]
    assert commands.keys() == GOOD.keys() == BAD.keys()
    for name, parser in commands.items():
        options = {option for action in parser._actions for option in action.option_strings}
        assert "--json" in options
        assert ("--dry-run" in options) == (name in CHANGING)


@pytest.mark.parametrize("command", GOOD)
def test_a_command_prints_json(table: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = parquet_files(table) if command == "convert" else table
    arguments = [*call(command, place, GOOD[command]), "--json"]
    before = contents(Path(table).parent)
    if command in CHANGING:
        assert main([*arguments, "--dry-run"]) == 0
        assert all(isinstance(line, dict) for line in lines(capsys))
        assert contents(Path(table).parent) == before
    assert main(arguments) == 0
    printed = lines(capsys)
    assert printed
    assert all(isinstance(line, dict) for line in printed)
    # The log needs no repair.
    assert (contents(Path(table).parent) != before) == (command in CHANGING - {"repair"} | {"report"})


@pytest.mark.parametrize("command", BAD)
def test_a_command_refuses_bad_input(table: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = BAD[command]
    before = contents(Path(table).parent)
    error = output(capsys, *call(command, parquet_files(table) if command == "convert" else table, arguments))
    assert error.startswith("deltic: ")
    assert message in error
    assert before.items() <= contents(Path(table).parent).items()


def test_detail(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detail", table]) == 0
    printed = capsys.readouterr().out
    for part in ("trips", "3 in 3 files", "partitioned by  month", "appendOnly"):
        assert part in printed
    assert main(["detail", table, "--json"]) == 0
    (shown,) = lines(capsys)
    detail = deltic.Table(table).detail()
    assert shown == json.loads(json.dumps(detail.to_dict(), default=lambda time: time.isoformat()))
    assert (shown["numRows"], shown["numFiles"], shown["version"]) == (3, 3, 1)


def test_a_dry_run_of_clone(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    copy = table + "-copy"
    assert main(["clone", table, copy, "--deep", "--dry-run"]) == 0
    planned = capsys.readouterr().out
    assert f"would make version 0 of {copy}" in planned
    assert not Path(copy).exists()
    assert main(["clone", table, copy, "--deep"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == planned.splitlines()[1:]
    assert main(["clone", table, copy, "--deep", "--mode", "update", "--dry-run"]) == 0
    assert capsys.readouterr().out == "nothing differs\n"


def test_an_unknown_option_prints_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, usage in (
        (["vacuum", "x", "--hours", "1"], "deltic vacuum"),
        (["--quick", "show", "x"], "deltic show"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"usage: {usage} ")
        assert "unrecognized arguments: --" in shown


def test_a_version_in_the_location_is_named(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--version 0" in output(capsys, "show", f"{table}@v0")
    with pytest.raises(deltic.TableNotFoundError, match=r"open `.*` and read `snapshot\(3\)`"):
        deltic.Table(f"{table}@v3").snapshot()
