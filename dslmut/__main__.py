"""``python -m dslmut``."""

import sys

from dslmut.front.cli import main

if __name__ == "__main__":
    sys.exit(main())
