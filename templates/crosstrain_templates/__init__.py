"""Jinja2 templates of the reports, the cluster jobs and the CI snippets."""
