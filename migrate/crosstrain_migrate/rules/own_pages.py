"""The pages of the tool's own codes, which no rule has; in the form of `catalogue`."""

PAGES = (
    """\
CT001: the result failed the tool's own checks

What:   Every result is read again before it is shown: it must parse, bind every name that it uses, keep every comment
        and its indentation, and a second migration of it must plan nothing. A result that fails is thrown away.
Why:    A conversion nobody can trust is worth less than none.
Leaves: the script as it was. This finding is a defect of the tool: please report the script.
""",
    """\
CT002: a suppression comment that does nothing, or is not understood

What:   A `# migrate: skip`, `off` or `skip-file` that kept no rule away, or a comment that begins like one and is not
        understood.
Why:    A comment that does nothing hides the next mistake, and a misspelled one protects nothing.
Before: `x = 1  # migrate: skpi`
After:  `x = 1  # migrate: skip`
""",
    """\
CT003: a part of the conversion is kept away

What:   A suppression comment, `--select` or `--ignore` keeps a rule away whose edits the rest of the conversion relies
        on (`loss.backward()  # migrate: skip`, say).
Why:    With `prepare` and without `backward` a script trains something else. A script is converted whole or not at all.
Leaves: the script as it was, until the comment goes, the rule is let in, or `# migrate: skip-file` leaves it alone.
""",
    """\
CT004: files that several scripts share

What:   A script is migrated together with the files it imports from its own project. Where such a file is used by another
        script as well, both must need the same of it; `--no-follow` forbids changes outside of the file that was named.
Why:    A function that now takes the accelerator breaks every caller that was not migrated with it.
Before: `migrate train.py` (and `finetune.py` calls the same `run_epoch`)
After:  `migrate train.py finetune.py`
Leaves: every file of the script as it was.
""",
    """\
CT005: what `--todo` leaves to a person

What:   With `--todo` a script that is refused gets what stands alone (prints, progress bars, directories and files that
        one process writes), and above each place that needs a person a line that says what to write. The core
        (accelerator, prepare, backward, device) stays as it was.
Why:    Half a conversion must not train: such a script stops at its start under several processes, and `--check` fails,
        until these lines are gone.
Before: `count = pred.eq(queue).sum()`
After:  `# TODO(crosstrain CT602): compute it from tensors that keep one row per sample: ...` above it
""",
)
