"""`python -m crosstrain_migrate`: the command `migrate`, wherever its script is installed."""

from crosstrain_migrate.cli import main

main()
