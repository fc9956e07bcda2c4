"""Training scripts in other words: transformations that keep what a script computes, and what the tool makes of the results.

`python -m tests.corpora.variations` applies them to the golden scripts. `families` has a module for each kind.
"""
