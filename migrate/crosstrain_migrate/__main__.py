"""`python -m crosstrain_migrate`: the command `migrate`, wherever its script is installed."""

from .cli.commands import main

main()
