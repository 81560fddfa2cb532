"""The command line: what it prints and how it fails."""

import json

import pyarrow as pa
import pytest

import deltic
from deltic.cli import main


@pytest.fixture
def table(uri: str) -> str:
    deltic.write(uri, pa.table({"month": [1, 2], "km": [1, 3]}), partition_by=["month"], name="trips")
    deltic.write(uri, pa.table({"month": [2], "km": [9]}))
    return uri


def test_show(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", table]) == 0
    printed = capsys.readouterr().out
    for part in ("trips", "version         1", "files           3", "partitioned by  month", "km", "int64"):
        assert part in printed
    assert main(["show", table, "--version", "0"]) == 0
    assert "files           2" in capsys.readouterr().out


def test_files(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", table, "--filter", "month = 2 AND km > 5"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "month=2/" in line


def test_history(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", table]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["history", table, "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


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
    assert "1970-01-01 00:00:00Z  ?" in five
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
    assert "1 files by partition" in printed


def test_errors_are_one_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", uri]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("deltic: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["dance"], ["show"], ["show", "x", "--storage", "novalue"]])
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
