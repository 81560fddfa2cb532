"""`format("deltic")` in Spark: its data source, `install`, and views."""
