"""What is shown: strings, times, charts. Nothing here does I/O."""
