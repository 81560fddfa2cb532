"""A standalone Spark cluster on this machine: a master and two workers, each for one executor with one core."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from killed_tasks import EXECUTOR, command
from pyspark.sql import SparkSession

import deltic

Found = TypeVar("Found")

WORKERS = 2
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options with which a JVM starts faster."""


def _environment() -> dict[str, str]:
    """The environment of the cluster: its executors import deltic and the helpers of the tests as this process does."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    imported = [Path(deltic.__file__).parents[1], Path(__file__).parents[1]]
    return os.environ | {
        "SPARK_HOME": str(Path(pyspark.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        # The port of this server is not chosen freely.
        "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT} -Dspark.master.rest.enabled=false",
        "PYTHONPATH": os.pathsep.join(map(str, imported)),
    }


@contextmanager
def _process(log: Path, class_name: str, *arguments: str) -> Iterator[None]:
    """Run a class of Spark in a process of its own during the block."""
    environment = _environment()
    spark_class = Path(environment["SPARK_HOME"], "bin", "spark-class")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [spark_class, f"org.apache.spark.deploy.{class_name}", "--host", "127.0.0.1", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        # A worker ends its executors.
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a cluster during the block; returns the address of its master. Its files are in `folder`."""
    log = folder / "master.log"
    with ExitStack() as processes:
        processes.enter_context(_process(log, "master.Master", "--port", "0", "--webui-port", "0"))
        # Before that the master ignores workers and applications, which try again much later.
        wait_for(lambda: "New state: ALIVE" in log.read_text(), f"the master, see {log}")
        address = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())
        assert address is not None
        for number in range(WORKERS):
            name = f"worker {number}"
            (folder / name).mkdir()
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name), "--webui-port", "0"]
            processes.enter_context(_process(folder / f"{name}.log", "worker.Worker", *arguments, address.group()))
        wait_for(lambda: log.read_text().count("Registering worker") == WORKERS, f"the workers, see {folder}")
        yield address.group()


def wait_for(found: Callable[[], Found | None], what: str) -> Found:
    """Call a function until its result is true, and return it."""
    deadline = time.monotonic() + 60
    while not (result := found()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return result


def executors(spark: SparkSession) -> list[int]:
    """The process ids of the executors of a session."""
    application = spark.sparkContext.applicationId
    found = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            words = command(pid)
            if EXECUTOR in words and application in words:
                found.append(pid)
    return sorted(found)


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until each worker has an executor that takes tasks."""
    registered = spark.sparkContext._jsc.sc().getExecutorIds  # type: ignore[union-attr]
    wait_for(lambda: len(executors(spark)) == registered().size() == WORKERS, "executors")


def kill_an_executor(spark: SparkSession, chosen: random.Random) -> None:
    """Kill a process of an executor, and return once it has ended."""
    pid = chosen.choice(executors(spark))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pid not in executors(spark), "the end of an executor")
