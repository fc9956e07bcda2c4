"""A flag by which data waits on the CPU is no choice of where to compute."""

from .converting import converted, notes

WAITS = """import argparse
<torch>
def rows_at(keep_cuda_free):
    place = {place}
    return torch.ones(8, 4).to(place)
def train(keep_cuda_free):
    <model torch.nn.Linear(4, 2).cuda()>
    for x in DataLoader(rows_at(keep_cuda_free), 8):
        if keep_cuda_free:
            x = x.cuda()
        <step model(x).mean()>
parser = argparse.ArgumentParser()
parser.add_argument("--keep-cuda-free", action="store_true")
train(parser.parse_args().keep_cuda_free)
"""


def test_a_flag_by_which_data_waits_on_the_cpu_is_no_choice_of_where_to_compute() -> None:
    text = WAITS.format(place='torch.device("cpu") if keep_cuda_free else torch.device("cuda")')
    after = converted(text)
    assert 'place = torch.device("cpu") if keep_cuda_free else PartialState().device' in after, after
    assert "cpu=" not in after and not notes(text, "CT105")


def test_a_flag_by_which_nothing_else_is_moved_is_one() -> None:
    text = WAITS.format(place='torch.device("cpu") if keep_cuda_free else torch.device("cuda")')
    after = converted(text.replace("if keep_cuda_free:", "if True:"))
    assert 'torch.device("cpu")' not in after, after
