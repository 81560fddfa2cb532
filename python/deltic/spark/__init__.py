"""Delta tables in PySpark without a JVM Delta library: files are pruned, read and written by the Rust core.

`read` and `write` use `mapInArrow`; `register` makes `spark.read.format("deltic")` work, and `install` also all save
modes of `df.write.format("deltic")`. Executors need deltic and pyarrow; pyspark must be 4.0 or newer. This is the only
part of deltic that imports pyspark.
"""

from deltic.spark.data_source.install import install, uninstall
from deltic.spark.data_source.source import DelticDataSource, register
from deltic.spark.data_source.view import create_view
from deltic.spark.delta_table import DeltaMergeBuilder, DeltaTable
from deltic.spark.dml.rows import delete, merge, update
from deltic.spark.maintenance import convert, optimize, vacuum
from deltic.spark.read import read
from deltic.spark.writing.write import write

__all__ = [
    "DeltaMergeBuilder",
    "DeltaTable",
    "DelticDataSource",
    "convert",
    "create_view",
    "delete",
    "install",
    "merge",
    "optimize",
    "read",
    "register",
    "uninstall",
    "update",
    "vacuum",
    "write",
]
