"""`python -m deltic`: the command line of `deltic.cli`."""

import sys

try:
    from deltic.cli import main

    code = main()
except KeyboardInterrupt:
    code = 130
sys.exit(code)
