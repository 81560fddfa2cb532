"""What a program learns of an operation that runs: its progress, its spans."""
