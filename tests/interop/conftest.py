"""What the interoperability tests share. Each suite runs in a process of its own: see the Makefile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sample import every_type, log_actions

import deltic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def flights() -> pa.Table:
    """Rows of every type, with two columns fit to partition by, one of which holds nulls and awkward text."""
    table = every_type(120)
    origins = [["EWR", "JFK", "a b/c=d%", None][i % 4] for i in range(120)]
    return table.append_column("origin", pa.array(origins)).append_column(
        "month", pa.array([i % 3 for i in range(120)])
    )


FILTERS = [
    "month = 1",
    "month = 1 AND integer > 50000",
    "origin = 'JFK' OR id < 3",
    "origin IS NULL",
    "id BETWEEN 30 AND 40",
    "string LIKE 'row 1%'",
    "date >= DATE '2013-03-01'",
    "NOT (month = 1)",
    "byte = -128",
    "big_decimal > 10",
    "boolean AND double < 10.5",
]
"""Text that means the same to every engine."""


RELEASES = {"4.0": "io.delta:delta-spark_2.13:4.0.0", "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0"}
RELEASES["4.2"] = "io.delta:delta-spark_4.2_2.13:4.4.0"
# PySpark has what these groups hold.
EXCLUDES = ",".join(
    f"{group}:*"
    for group in (
        "org.apache.*",
        "org.scala-lang",
        "org.slf4j",
        "org.xerial.snappy",
        "org.roaringbitmap",
        "com.fasterxml.*",
        "com.github.luben",
        "com.google.*",
        "commons-*",
        "io.airlift",
        "javax.*",
    )
)
# Compile quickly rather than well; the small cache for code that comes with this would fill up.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltic" / "jars"


def resolve(package: str) -> list[Path]:
    """The jars of a package, from the cache or through Spark's resolver, in a process that ends with it."""
    folder = CACHE / package.replace(":", "_")
    done = folder / "resolved"
    if not done.exists():
        program = (
            "import sys; from pyspark.sql import SparkSession\n"
            "b = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
            "b = b.config('spark.jars.packages', sys.argv[1]).config('spark.jars.ivy', sys.argv[2])\n"
            "b.config('spark.jars.excludes', sys.argv[3]).getOrCreate().stop()"
        )
        try:
            subprocess.run(
                [sys.executable, "-c", program, package, str(folder), EXCLUDES],
                check=True,
                capture_output=True,
                text=True,
                timeout=600,
                # A local Maven repository that holds descriptions without jars would spoil the resolution.
                env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Duser.home={folder}"},
            )
        except (subprocess.SubprocessError, OSError) as error:
            last = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1:]
            pytest.skip(f"{package} could not be fetched from Maven: {last}")
        done.touch()
    return sorted((folder / "jars").glob("*.jar"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session with delta-spark for all modules of this suite."""
    pyspark = pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        pytest.skip("another Spark session is open; this suite needs a process of its own")
    release = RELEASES.get(".".join(pyspark.__version__.split(".")[:2]))
    if release is None:
        pytest.skip(f"no delta-spark is known for PySpark {pyspark.__version__}")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Tables are tiny and plans many: what prepares for much data costs more than it saves.
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.jars", ",".join(map(str, resolve(release))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how much was compared, for the number of filters is a choice."""
    matrix = sys.modules.get("test_matrix")
    if matrix is not None and matrix.COMPARED:
        terminalreporter.write_line(f"rows compared with delta-spark {matrix.COMPARED.total()} times")


def with_reused_sidecars(uri: str, flights: pa.Table) -> pa.Table:
    """A table read from a checkpoint whose sidecars are partly those of the one before; returns its rows."""
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "100"}
    for start in range(0, 120, 40):
        deltic.write(uri, flights.slice(start, 40), partition_by=["month"], properties=None if start else properties)
        deltic.Table(uri).checkpoint()
    log = Path(uri, "_delta_log")
    # One file leaves: its sidecar is written anew, the others are named again.
    add = next(action["add"] for action in log_actions(uri, 1) if "add" in action)
    remove = {"path": add["path"], "deletionTimestamp": 4102444800000, "dataChange": True}
    (log / f"{3:020}.json").write_text(json.dumps({"remove": remove}))
    assert deltic.Table(uri).checkpoint() == 3
    hints = [json.loads(line)["v2Checkpoint"] for line in (log / "_last_checkpoint").read_text().splitlines()]
    assert len(hints[0]["sidecarFiles"]) == 4
    # delta-spark wants the commit of the checkpoint's version to be there.
    kept = (hints[0]["path"], "_last_checkpoint", f"{3:020}.json")
    for file in log.iterdir():
        if file.is_file() and file.name not in kept:
            file.unlink()
    month = int(add["partitionValues"]["month"])
    return flights.filter([not (40 <= i < 80 and i % 3 == month) for i in range(120)])
