"""Log records of the logger `deltic`."""

import logging
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from object_store import object_store

import deltic

ROWS = pa.table({"id": [1, 2, 3]})


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.name for record in caplog.records} <= {"deltic"}
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_commits_and_plans_are_logged(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="deltic")
    deltic.write(uri, ROWS)
    deltic.write(uri, pa.table({"id": [100]}))
    with deltic.Table(uri).transaction() as tx:
        tx.append(ROWS)
    deltic.Table(uri).scan(filter="id > 50").to_arrow()
    assert log_lines(caplog) == [
        f"INFO committed version 0 of {uri} (attempts: 1, files added: 1)",
        f"INFO committed version 1 of {uri} (attempts: 1, files added: 1)",
        f"INFO committed version 2 of {uri} (attempts: 1, files added: 1)",
        f"DEBUG a scan of version 2 of {uri} keeps 1 of 3 files",
    ]


def test_a_plan_is_logged_without_counting_the_files(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(11):
        deltic.write(uri, ROWS)
    for checksum in Path(uri, "_delta_log").glob("*.crc"):
        checksum.unlink()
    table = deltic.Table(uri)
    table.scan(filter="id > 1")
    before = table.request_counts
    caplog.set_level(logging.DEBUG, logger="deltic")
    table.scan(filter="id > 2")
    assert log_lines(caplog) == [f"DEBUG a scan of version 10 of {uri} keeps 11 files"]
    assert table.request_counts == before


@pytest.mark.parametrize("part", ["handler", "filter"])
def test_an_exception_in_a_handler_is_ignored(
    uri: str, part: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the disk of the log is full")

        def filter(self, record: logging.LogRecord) -> bool:
            if part == "filter":
                raise RuntimeError("the disk of the log is full")
            return True

    raised: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    caplog.set_level(logging.DEBUG, logger="deltic")
    handler = Broken()
    logging.getLogger("deltic").addHandler(handler)
    try:
        assert deltic.write(uri, ROWS).version == 0
        with deltic.Table(uri).transaction() as tx:
            tx.append(ROWS)
        assert deltic.Table(uri).scan().to_arrow().num_rows == 6
    finally:
        logging.getLogger("deltic").removeHandler(handler)
    assert [str(error) for error in raised] == ["the disk of the log is full"] * 3


def test_a_keyboard_interrupt_in_a_handler_reaches_the_caller(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyboardInterrupt

    caplog.set_level(logging.DEBUG, logger="deltic")
    handler = Stop()
    logging.getLogger("deltic").addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            deltic.write(uri, ROWS)
    finally:
        logging.getLogger("deltic").removeHandler(handler)


def test_lost_attempts_and_conflicts_are_logged(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    deltic.write(uri, ROWS)
    table = deltic.Table(uri)
    caplog.set_level(logging.DEBUG, logger="deltic")
    with table.transaction() as tx:
        tx.append(ROWS)
        deltic.write(uri, ROWS)
    assert "DEBUG attempt 1: version 1 is taken, 2 is tried next" in log_lines(caplog)
    assert f"INFO committed version 2 of {uri} (attempts: 2, files added: 1)" in log_lines(caplog)
    caplog.clear()

    def lose() -> None:
        with table.transaction() as tx:
            tx.remove("id < 100")
            with deltic.Table(uri).transaction() as other:
                other.remove("id < 100")

    with pytest.raises(deltic.CommitConflictError):
        lose()
    assert any(line.startswith("INFO nothing was committed, Concurrent") for line in log_lines(caplog)), caplog.text


def test_records_below_the_level_are_not_logged(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="deltic")
    deltic.write(uri, ROWS)
    deltic.Table(uri).scan().to_arrow()
    assert [line.split()[0] for line in log_lines(caplog)] == ["INFO"]
    caplog.clear()
    caplog.set_level(logging.WARNING, logger="deltic")
    deltic.write(uri, ROWS)
    assert log_lines(caplog) == []


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("deltic").setLevel(logging.DEBUG)
    options = {
        "aws_endpoint": "http://user:sesame@127.0.0.1:1",
        "aws_allow_http": "true",
        "aws_region": "here",
        "aws_access_key_id": "sesame",
        "aws_secret_access_key": "sesame",
        "aws_session_token": "sesame",
    }
    with pytest.raises(deltic.DelticError):
        deltic.write("s3://bucket/t", ROWS, storage_options=options)
    deltic.write(tmp_path / "t", ROWS, user_metadata="sesame")
    assert log_lines(caplog)
    assert "sesame" not in caplog.text


@pytest.mark.slow
def test_handlers_that_use_deltic_do_not_deadlock(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="deltic")
    deltic.write(uri, ROWS)
    seen: list[int] = []

    class Looks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "committed" in record.getMessage():
                seen.append(deltic.Table(uri).snapshot().version)

    handler = Looks()
    logging.getLogger("deltic").addHandler(handler)
    try:
        threads = [threading.Thread(target=deltic.write, args=(uri, ROWS)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        logging.getLogger("deltic").removeHandler(handler)
    assert sum("committed" in line for line in log_lines(caplog)) == 9
    assert len(seen) == 8


@pytest.mark.slow
def test_a_forked_child_logs_once(tmp_path: Path, python: str) -> None:
    script = """
        import logging, os, sys
        import deltic, pyarrow as pa
        logging.basicConfig(level=logging.DEBUG, format="%(process)d %(name)s %(message)s", stream=sys.stdout)
        deltic.write(sys.argv[1], pa.table({"id": [1]}))
        if (child := os.fork()) == 0:
            deltic.write(sys.argv[1], pa.table({"id": [2]}))
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    uri = str(tmp_path / "t")
    ended = subprocess.run(
        [python, "-c", textwrap.dedent(script), uri], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line.split(" ", 1) for line in ended.stdout.splitlines()]
    assert sorted(line for _, line in lines if "committed" in line) == [
        f"deltic committed version {version} of {uri} (attempts: 1, files added: 1)" for version in range(2)
    ]
    assert len({process for process, _ in lines}) == 2
    assert str(os.getpid()) not in {process for process, _ in lines}


@pytest.mark.slow
def test_retried_requests_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    commit = f"_delta_log/{0:020}.json"
    with object_store() as store:
        secret = {"aws_access_key_id": "sesame", "aws_secret_access_key": "sesame", "aws_session_token": "sesame"}
        options = {**store.options, **secret, "backoff_config.init_backoff": "1ms", "backoff_config.max_backoff": "1ms"}
        table = deltic.Table("s3://bucket/t", options)
        deltic.write(table, ROWS)
        requests: list[str] = []

        def busy(method: str, path: str) -> bool:
            requests.append(f"{method} {path}")
            return requests.count(f"{method} {path}") <= 2 and path.endswith(commit)

        store.busy = busy
        caplog.set_level(logging.INFO, logger="deltic")
        assert [entry["version"] for entry in deltic.Table("s3://bucket/t", options).history()] == [0]
        assert requests.count(f"GET bucket/t/{commit}") >= 3
        again = [line for line in log_lines(caplog) if "sent again" in line]
        address = f"http://127.0.0.1:{store.port}/bucket/t/{commit}"
        line = f"INFO GET {address}: the server answered with status 503; the request is sent again as far as retries"
        assert again == [f"{line} are left"] * 2
        assert "sesame" not in caplog.text


@pytest.mark.slow
def test_a_commit_with_unknown_outcome_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    with object_store() as store:
        options = {**store.options, "backoff_config.init_backoff": "1ms", "backoff_config.max_backoff": "1ms"}
        table = deltic.Table("s3://bucket/t", options)
        deltic.write(table, ROWS)
        requests: list[str] = []

        def busy(method: str, path: str) -> bool:
            is_commit = method == "PUT" and path.endswith(f"_delta_log/{1:020}.json")
            requests.extend([path] if is_commit else [])
            return is_commit and len(requests) == 1

        store.busy = busy
        caplog.set_level(logging.DEBUG, logger="deltic")
        assert deltic.write(table, ROWS).version == 1
        assert len(requests) == 2
        assert "DEBUG attempt 1: version 1 is tried again" in log_lines(caplog)
