"""The options and results of operations on a table, with their display."""
