"""`python -m gripfast` is the command line."""

import sys

from gripfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
