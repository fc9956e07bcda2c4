"""Everything that is to be tried on a GPU, by one command and into one report: `make gpu-check`.

`sections` are what is tried, `golden` trains the golden corpus, `report` writes the Markdown file.
"""
