"""Changes of rows: values of columns, the clauses and the source of a merge."""
