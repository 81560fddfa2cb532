"""Names of types, and values of other libraries' types."""
