"""`Table`, and the groups of methods that it inherits."""
