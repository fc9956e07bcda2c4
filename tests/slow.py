"""Which tests the short set leaves out: `tests/slow.txt`, with their seconds on two quiet cores.

    CROSSTRAIN_TEST_ALL=1 pytest -n 2 --dist worksteal --durations=0 > durations.txt
    python -m tests.slow durations.txt

writes it anew. Of each test function, every fast case stays in the short set, or else its fastest one; what takes longer is
left out, but for the tests named in `ALWAYS`.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

TABLE = Path(__file__).with_suffix(".txt")
FAST, ONE = 0.7, 4.0  # seconds: of every case that stays, and of the fastest of a function
# The product as a user meets it: pages, trainings before and after, proofs; and what only a slow test notices.
ALWAYS = (
    "tests/docs/test_pages.py::test_the_commands_of_a_page_show_what_it_shows[README.md]",
    "tests/golden/test_golden.py::test_trains_the_same[amp_gradscaler]",
    "tests/golden/test_golden.py::test_trains_the_same[char_lm]",
    "tests/golden/test_golden.py::test_trains_the_same[ddp_tutorial]",
    "tests/golden/test_golden.py::test_trains_the_same[gan]",
    "tests/golden/test_golden.py::test_trains_the_same[imagenet_style]",
    "tests/golden/test_golden.py::test_trains_the_same[mnist_functions]",
    "tests/golden/test_golden.py::test_trains_the_same[resume]",
    "tests/golden/test_golden.py::test_trains_the_same[vae]",
    "tests/golden/test_trees.py::test_trains_the_same[trainer_package]",
    "tests/runtime/test_wrapped.py::test_micro_steps_average_once[compiled]",
    "tests/verify/test_stalls.py::test_stalled[sum(range(1000))-True-True]",
    "tests/verify/test_by_hand.py::test_a_planted_mistake_is_named[loader-not-prepared]",
    "tests/runtime/test_comm.py::test_collectives_over_two_processes",
    "tests/runtime/test_launch.py::test_exit_code_is_the_ranks_own[exit_code]",
    "tests/runtime/test_checkpoint.py::test_resume_is_exact[own-between windows-2]",
    "tests/runtime/test_checkpoint.py::test_resume_is_exact[own-inside a window-2]",
    "tests/runtime/test_checkpoint.py::test_resume_is_exact[own-epoch end-2]",
    "tests/runtime/test_data_resume.py::test_a_checkpoint_holds_the_state_of_every_process[rows-0-False-2]",
    "tests/runtime/test_evaluation.py::test_loops_have_the_numbers_of_one_process[2]",
)
_LINE = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/\S+?::.+)$", re.MULTILINE)


def measured(output: str) -> dict[str, float]:
    """The seconds of every test that pytest's `--durations` names."""
    found: dict[str, float] = defaultdict(float)
    for seconds, test in _LINE.findall(output):
        found[test.strip()] += float(seconds)
    return found


def left_out(seconds: dict[str, float]) -> list[tuple[float, str]]:
    """The tests that the short set leaves out, slowest first."""
    cases: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for test, taken in seconds.items():
        cases[test.partition("[")[0]].append((taken, test))
    slow: list[tuple[float, str]] = []
    for own in cases.values():
        fastest = min(own)
        slow += [case for case in own if case[0] > (ONE if case == fastest else FAST)]
    return sorted((case for case in slow if case[1] not in ALWAYS), reverse=True)


def listed(lines: Iterable[str]) -> set[str]:
    return {line.split(maxsplit=1)[1].rstrip("\n") for line in lines if line.strip()}


def main() -> None:
    seconds = measured(Path(sys.argv[1]).read_text(errors="replace"))
    slow = left_out(seconds)
    TABLE.write_text("".join(f"{taken:6.1f} {test}\n" for taken, test in slow))
    left = sum(seconds.values()) - sum(taken for taken, _ in slow)
    print(f"{len(slow)} tests are left out; the others take {left:.0f} s of one worker's time")


if __name__ == "__main__":
    main()
