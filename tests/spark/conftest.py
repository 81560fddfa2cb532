"""One Spark session for all of these tests: two cores, three attempts for each task, and a time zone other than UTC."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from delta_spark import JAVA_OPTIONS

pyspark = pytest.importorskip("pyspark")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# For this session and those of processes that the tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["pyspark.sql.SparkSession"]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("deltic tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "America/Los_Angeles")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def installed(spark: "pyspark.sql.SparkSession") -> Iterator[None]:
    """`df.write.format("deltic")` is deltic's own for the test."""
    import deltic.spark

    deltic.spark.install(spark)
    yield
    deltic.spark.uninstall(spark)


@pytest.fixture
def in_connect() -> Callable[[str, str], None]:
    """Run a script, which gets an argument, in a process whose sessions are those of Spark Connect."""
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")

    def run(script: str, argument: str) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        command, environment = [sys.executable, "-c", script, argument], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]

    return run


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")
