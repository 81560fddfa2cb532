"""Many processes append to one table concurrently: no row is lost or duplicated, no append fails."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import pytest
import servers
from conftest import APPENDS, WRITERS, report
from proof import check_appends, rates, read_log
from writers import SCHEMA, Work, append, running

import deltic

WAYS: list[Literal["path", "handle", "transaction"]] = ["path", "handle", "transaction"]


def check_all_append(uri: str, storage_options: dict[str, str] | None, where: str) -> None:
    table = deltic.Table(uri, storage_options)
    deltic.create(table, SCHEMA)
    works = [
        (append, Work(uri, f"w{n}", APPENDS, storage_options=storage_options, how=WAYS[n % 3])) for n in range(WRITERS)
    ]
    received: list[Any] = []
    with running(works) as processes:
        began = time.perf_counter()
        for process in processes:
            messages = process.everything()
            assert len(messages) == APPENDS, f"{process.work.name} ended after {len(messages)} appends"
            received += messages
        seconds = time.perf_counter() - began
    acknowledged = check_appends(table, received, WRITERS * APPENDS)
    report(f"{WRITERS} processes, {where}: {rates(acknowledged, seconds)}")


def test_processes_append_on_the_local_disk(uri: str) -> None:
    check_all_append(uri, None, "local disk")
    assert len(read_log(uri)) == WRITERS * APPENDS + 1


@pytest.mark.parametrize(("start", "where"), [(servers.s3, "S3 server"), (servers.gcs, "Google's interface")])
def test_processes_append_on_a_server(start: Callable[[], AbstractContextManager[servers.Server]], where: str) -> None:
    with start() as server:
        check_all_append(server.uri("appends"), server.storage_options, where)
