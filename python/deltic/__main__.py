"""`python -m deltic`: the command line of `deltic.cli`."""

import sys

from deltic.cli import main

sys.exit(main())
