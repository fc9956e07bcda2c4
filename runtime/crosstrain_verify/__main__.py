"""`python -m crosstrain_verify a.py b.py` is `crosstrain verify a.py b.py`, without the console script."""

import sys

from crosstrain.cli import main

if __name__ == "__main__":
    main(["verify", *sys.argv[1:]], prog_name="crosstrain")
