"""Python's syntax, whatever it means: texts parsed, names resolved, edits carried out.

In: the text of a script, or of a program of several files (`program`), and edits that name nodes of its tree (`edits`).
Out: scopes (`scopes`), what a name may be bound by (`bindings`, `early`), the text with the edits made (`rewrite` with
`blocks` and `new_imports`, then `layout`), and what is wrong with that text (`checks`). Every room may import this one;
it imports none.
"""
