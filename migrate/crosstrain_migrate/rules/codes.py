"""What each rule code is called. The page of a code is the docstring of the module that holds its rule."""

from __future__ import annotations

TITLES: dict[str, str] = {
    "CT001": "the result failed the tool's own checks",
    "CT002": "a suppression comment that does nothing, or is not understood",
    "CT003": "a part of the conversion is kept away",
    "CT004": "files that several scripts share",
    "CT005": "what `--todo` leaves to a person",
    "CT101": "import the Accelerator",
    "CT102": "make the one Accelerator",
    "CT103": "the prepared model is not moved by hand",
    "CT104": "batches of prepared loaders are not moved by hand",
    "CT105": "what still needs a device gets the accelerator's",
    "CT106": "functions are handed the accelerator",
    "CT201": "prepare model, optimizer, loaders and schedulers",
    "CT202": "backward goes through the accelerator",
    "CT203": "clipping goes through the accelerator",
    "CT204": "a loss that is a sum stays a sum",
    "CT205": "schedulers step as they are written",
    "CT206": "micro-batches are averaged once a step",
    "CT301": "DataParallel",
    "CT302": "DistributedDataParallel",
    "CT303": "torch.distributed by hand",
    "CT304": "DistributedSampler",
    "CT305": "processes started by hand",
    "CT306": "autocast and GradScaler",
    "CT307": "NVIDIA apex",
    "CT308": "a device chosen by hand",
    "CT309": "barriers, ranks and regions become the accelerator's",
    "CT310": "all processes take the same branch",
    "CT401": "one process prints",
    "CT402": "directories may exist already",
    "CT403": "one process writes files",
    "CT404": "downloads are there before they are read",
    "CT501": "model weights are saved once, whole",
    "CT502": "checkpoints are saved once, whole",
    "CT503": "a file is read after it has been written",
    "CT601": "evaluation counts every sample once",
    "CT602": "numbers of training are the global ones",
    "CT603": "evaluation that stays whole on every process",
    "CT604": "one loop that trains and evaluates",
    "CT605": "what depends on how a batch is shared",
    "CT606": "metric objects count every row once",
    "CT701": "shapes that depend on values",
    "CT702": "branches on a tensor's value",
    "CT703": "values read in every step",
    "CT704": "lengths that follow the batch",
    "CT705": "loop counts and slices that vary",
    "CT706": "recurrent layers and packed sequences",
    "CT707": "autocast for a named device",
    "CT708": "rates that go by processes",
    "CT709": "tied weights and a plain move",
    "CT801": "a notebook's training goes through notebook_launcher",
    "CT901": "built on something that distributes training itself",
    "CT902": "training without a DataLoader",
    "CT903": "a line search on a rank's own loss",
    "CT904": "random numbers drawn alike",
    "CT905": "training that no call leads to",
}

# Codes of the tool itself, which no rule module documents.
OWN_PAGES: dict[str, str] = {
    "CT001": """\
What:   Every result is read again before it is shown: it must parse, bind every name that it uses, keep every comment
        and its indentation, and a second migration of it must plan nothing. A result that fails is thrown away.
Why:    A conversion nobody can trust is worth less than none.
Leaves: the script as it was. This finding is a defect of the tool: please report the script.
""",
    "CT002": """\
What:   A `# migrate: skip`, `off` or `skip-file` that kept no rule away, or a comment that begins like one and is not
        understood.
Why:    A comment that does nothing hides the next mistake, and a misspelled one protects nothing.
Before: `x = 1  # migrate: skpi`
After:  `x = 1  # migrate: skip`
""",
    "CT003": """\
What:   A suppression comment, `--select` or `--ignore` keeps a rule away whose edits the rest of the conversion relies
        on (`loss.backward()  # migrate: skip`, say).
Why:    With `prepare` and without `backward` a script trains something else. A script is converted whole or not at all.
Leaves: the script as it was, until the comment goes, the rule is let in, or `# migrate: skip-file` leaves it alone.
""",
    "CT004": """\
What:   A script is migrated together with the files it imports from its own project. Where such a file is used by another
        script as well, both must need the same of it; `--no-follow` forbids changes outside of the file that was named.
Why:    A function that now takes the accelerator breaks every caller that was not migrated with it.
Before: `migrate train.py` (and `finetune.py` calls the same `run_epoch`)
After:  `migrate train.py finetune.py`
Leaves: every file of the script as it was.
""",
    "CT005": """\
What:   With `--todo` a script that is refused gets what stands alone (prints, progress bars, directories and files that
        one process writes), and above each place that needs a person a line that says what to write. The core
        (accelerator, prepare, backward, device) stays as it was.
Why:    Half a conversion must not train: such a script stops at its start under several processes, and `--check` fails,
        until these lines are gone.
Before: `count = pred.eq(queue).sum()`
After:  `# TODO(crosstrain CT602): compute it from tensors that keep one row per sample: ...` above it
""",
}
