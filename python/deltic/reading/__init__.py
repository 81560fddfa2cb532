"""Queries of a table: its versions, their plans and rows."""
