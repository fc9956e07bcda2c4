"""Public training scripts, by name only: what the tool makes of them.

`scripts.json` lists repositories, commits and paths, and what a careful expert does; none of their code is here.
"""
