"""Calls the function of the main module that the first argument names, with --name=value as keywords."""

import ast
import sys


def value_of(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def Fire():
    name, *options = sys.argv[1:]
    keywords = dict(option.lstrip("-").split("=", 1) for option in options)
    getattr(sys.modules["__main__"], name)(**{k: value_of(v) for k, v in keywords.items()})
