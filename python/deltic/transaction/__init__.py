"""Several steps as one commit, and the steps that change no rows."""
