"""What only reads a table: the layout of its files, the differences of versions, a report."""
