"""How converted lines stand in the author's file: one `if` for one test, one `with` for neighbours."""

import pytest

from tests.rules.support import migrate, script

WRITES = 'np.save("best.npy", np.ones(2))'
ALONE = "accelerator.is_main_process"


def migrated(**slots: str) -> str:
    return migrate(script(**slots)).after


@pytest.mark.parametrize(
    ("test", "joined"),
    [
        ("epoch == 1", f"epoch == 1 and {ALONE}"),
        ("not epoch", f"not epoch and {ALONE}"),
        ("epoch or test", f"(epoch or test) and {ALONE}"),
    ],
)
def test_a_guard_of_a_whole_body_joins_the_test_around_it(test: str, joined: str) -> None:
    after = migrated(imports="import numpy as np", setup="test = 0", after_epoch=f"if {test}:\n    {WRITES}")
    assert f"    if {joined}:\n        {WRITES}\n" in after


def test_a_comment_below_a_guard_that_joins_the_test_is_kept() -> None:
    block = f"if epoch == 1:  # the first\n    {WRITES}\n    # {WRITES}"
    after = migrated(imports="import numpy as np", setup="test = 0", after_epoch=block)
    assert f"    if epoch == 1 and {ALONE}:  # the first\n        {WRITES}\n        # {WRITES}\n" in after


@pytest.mark.parametrize(
    "block",
    [
        f"if epoch == 1:\n    test = 3\n    {WRITES}",
        f"if epoch == 1:\n    {WRITES}\nelse:\n    test = 1",
        f"if epoch == 1:\n    # the best\n    {WRITES}",
    ],
    ids=["a part of the body", "another branch", "a comment above"],
)
def test_a_guard_stands_alone_where_more_depends_on_the_test(block: str) -> None:
    after = migrated(imports="import numpy as np", setup="test = 0", after_epoch=block)
    assert f"if {ALONE}:\n            {WRITES}" in after
    assert "if epoch == 1:\n" in after


def test_a_comment_inside_what_is_replaced_stands_above_it() -> None:
    choice = '"cuda" if torch.cuda.is_available() else "cpu"'
    after = migrated(device=f"device = torch.device(  # the fastest\n    {choice})")
    assert "\n# the fastest\ndevice = accelerator.device\n" in after


def test_neighbours_of_several_lines_share_one_with() -> None:
    loader = "{} = DataLoader(\n    datasets.MNIST('d', {}download=True),\n    batch_size=8)\n"
    after = migrated(
        imports="import argparse\nfrom torchvision import datasets",
        data="options = argparse.ArgumentParser().parse_args()",
        loader=loader.format("train_loader", "") + loader.format("test_loader", "train=False, ").rstrip(),
        device="",
        model="model = nn.Linear(8, 3)",
        batch="",
    )
    assert after.count("with accelerator.main_process_first():") == 1
