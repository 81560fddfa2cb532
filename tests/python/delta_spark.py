"""delta-spark for the suites that need it: its jars, a session, and validation of checksums.

Spark's resolver fetches the jars from Maven once, into a cache. If that fails, the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

RELEASES = {"4.0": "io.delta:delta-spark_2.13:4.0.0", "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0"}
RELEASES["4.2"] = "io.delta:delta-spark_4.2_2.13:4.4.0"
# PySpark contains the packages of these groups.
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
# Short compile times matter more than fast code. The default code cache of this mode would be too small.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# Each commit validates the checksums before and after it against the state, and fails if they differ.
VALIDATING = {
    "spark.databricks.delta.incremental.commit.verify": "true",
    "spark.databricks.delta.checksum.mismatch.fatal": "true",
    "spark.databricks.delta.versionChecksum.forcedValidationInterval": "0",
}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltic" / "jars"


def resolve(package: str) -> list[Path]:
    """The jars of a package, from the cache or by Spark's resolver in a separate process."""
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
                # Do not use the local Maven repository: an entry without a jar would fail the resolution.
                env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Duser.home={folder}"},
            )
        except (subprocess.SubprocessError, OSError) as error:
            last = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1:]
            pytest.skip(f"{package} could not be fetched from Maven: {last}")
        done.touch()
    return sorted((folder / "jars").glob("*.jar"))


def jars() -> list[Path]:
    """The jars of the release for the installed PySpark; skip the test if there is none."""
    pyspark = pytest.importorskip("pyspark")
    release = RELEASES.get(".".join(pyspark.__version__.split(".")[:2]))
    if release is None:
        pytest.skip(f"no delta-spark is known for PySpark {pyspark.__version__}")
    return resolve(release)


def session(
    warehouse: Path, settings: Mapping[str, str], *, cores: int = 2, more_jars: tuple[Path, ...] = ()
) -> SparkSession:
    """A delta-spark session, the only session of the process."""
    found = [*jars(), *more_jars]
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        pytest.skip("another Spark session is open; this suite needs a process of its own")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Many plans on tiny tables: code generation, adaptive plans and many partitions cost more than they save.
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.jars", ",".join(map(str, found)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(warehouse))
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def check_checksum(spark: SparkSession, uri: str, *, needed: bool = True) -> None:
    """Let delta-spark validate the newest version's checksum against the state; it raises if they differ."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)
    none = jvm.scala.Option.empty()
    snapshot = log.update(False, none, none)
    assert snapshot.checksumOpt().isDefined() or not needed, f"version {snapshot.version()} has no checksum"
    assert snapshot.validateChecksum(jvm.scala.Predef.Map().empty())


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, such as its time zone, and change them back at the end."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
