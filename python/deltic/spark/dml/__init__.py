"""Changes of rows from Spark."""
