"""Entry point of `python -m graphcl.sweep`."""

import sys

from graphcl.sweep.command import main

if __name__ == "__main__":
    sys.exit(main())
