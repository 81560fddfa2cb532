"""Writes DataFrames, by deltic or by Spark's own writer."""
