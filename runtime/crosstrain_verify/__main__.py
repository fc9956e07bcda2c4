"""`python -m crosstrain_verify a.py b.py`: the command `crosstrain verify`, wherever its script is installed."""

import sys

from crosstrain.cli import main

if __name__ == "__main__":
    main(["verify", *sys.argv[1:]], prog_name="crosstrain")
