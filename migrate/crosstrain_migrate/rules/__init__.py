"""The codes: their pages (`migrate --explain CODE`), and who may report and edit where.

`catalogue` reads the pages (texts of `templates`, and those of `xla` and `notebooks`), `policy` obeys selections and comments, `todo`
writes what is left to a person, `xla` says what is slow on a TPU, `notebooks` takes a notebook through the engine.
"""
