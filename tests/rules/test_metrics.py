"""CT606: metric objects of torchmetrics do not add up what every process has already."""

from __future__ import annotations

from .support import Case, converts, each, leaves

RULE = "CT606"
IMPORT = "import torchmetrics"
MADE = 'torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3{})'
EXACT = ", sync_on_compute=False"
TRAINED = "out, y = accelerator.gather_for_metrics((out, y))\nscores.update(out, y)"
TOGETHER = "out, y = accelerator.gather_for_metrics((out, y))"
TOLD = ("print(scores.compute())", "accelerator.print(scores.compute())")


def scored(
    name: str, made: str, after: str, imports: str = IMPORT, update: str = "scores.update(out, y)"
) -> Case:
    """A metric object that training updates after each step."""
    gathered = TRAINED.replace("scores.update(", update.split("out")[0])
    return converts(
        RULE,
        name,
        {"imports": imports, "setup": f"scores = {made}", "after_step": update, "after_epoch": TOLD[0]},
        {"setup": f"scores = {after}", "after_step": gathered, "after_epoch": TOLD[1]},
        at=made.split("\n")[0],
    )


POSITIVE = [
    scored("updated", MADE.format(""), MADE.format(EXACT)),
    scored("called", MADE.format(""), MADE.format(EXACT), update="scores(out, y)"),
    scored(
        "without arguments",
        "torchmetrics.MeanSquaredError()",
        "torchmetrics.MeanSquaredError(sync_on_compute=False)",
    ),
    scored(
        "imported by name",
        "BinaryAccuracy(threshold=0.4)  # low",
        "BinaryAccuracy(threshold=0.4, sync_on_compute=False)  # low",
        imports="from torchmetrics.classification import BinaryAccuracy",
    ),
    scored("told otherwise", MADE.format(", sync_on_compute=True"), MADE.format(EXACT)),
    converts(
        RULE,
        "in a collection, which asks its metrics",
        {
            "imports": IMPORT,
            "setup": f"scores = torchmetrics.MetricCollection([{MADE.format('')}])",
            "after_step": "scores.update(out, y)",
            "after_epoch": TOLD[0],
        },
        {
            "setup": f"scores = torchmetrics.MetricCollection([{MADE.format(EXACT)}])",
            "after_step": TRAINED,
            "after_epoch": TOLD[1],
        },
    ),
]


def kept(name: str, setup: str, findings: bool = False, definitions: str = "", update: str = TRAINED) -> Case:
    return leaves(
        RULE,
        name,
        {
            "imports": IMPORT,
            "definitions": definitions,
            "setup": setup,
            "after_step": "scores.update(out, y)",
            "after_epoch": TOLD[0],
        },
        {"after_step": update, "after_epoch": TOLD[1]},
        findings=[(RULE, "scores =")] if findings else [],
    )


NEGATIVE = [
    kept(
        "a wrapper, which asks its metric",
        f"scores = torchmetrics.wrappers.MinMaxMetric({MADE.format(EXACT)})",
    ),
    kept("of another library", "import scoring\n\nscores = scoring.ConfusionMatrix()"),
    kept("told already", f"scores = {MADE.format(EXACT)}"),
    kept(
        "options that cannot be seen",
        "options = {}\nscores = torchmetrics.Accuracy(**options)",
        findings=True,
    ),
    kept(
        "a metric class of the script's own",
        "scores = Hits()",
        findings=True,
        definitions=(
            "class Hits(torchmetrics.Metric):\n"
            "    def update(self, out, y):\n"
            "        pass\n"
            "\n"
            "    def compute(self):\n"
            "        return 0\n"
        ),
        update=f"{TOGETHER}\nscores.update(out, y)",
    ),
    leaves(
        RULE,
        "a function",
        {
            "imports": "from torchmetrics.functional import accuracy",
            "after_step": 'print(accuracy(out, y, task="multiclass", num_classes=3))',
        },
        {
            "after_step": (
                f'{TOGETHER}\naccelerator.print(accuracy(out, y, task="multiclass", num_classes=3))'
            )
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_metrics(case: Case) -> None:
    case.check()
