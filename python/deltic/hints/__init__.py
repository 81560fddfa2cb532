"""Hints for names, keywords and filters of other libraries: what error messages say to use instead."""
