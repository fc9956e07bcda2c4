"""`python -m crosstrain_migrate.cli`: the command `migrate`."""

from .commands import main

main()
