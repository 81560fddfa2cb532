"""SQL that Spark evaluates for deltic: of callers, and of rules of a table."""
