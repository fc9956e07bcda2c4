"""What a notebook prepared in its own process trains on several all the same: a cell is run again, with more processes."""

import json
import subprocess
import sys

SCRIPT = """
import json
import torch
from torch.utils.data import DataLoader, TensorDataset
from crosstrain import Accelerator, debug_launcher, notebook_launcher
def train(model, optimizer, loader):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(((model(x) - y) ** 2).mean())
        optimizer.step()
    weights = accelerator.gather(model.weight.detach())
    return accelerator.num_processes, len(loader), weights.tolist()
def made():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(16, 2), torch.randn(16, 1))
    return model, optimizer, DataLoader(data, batch_size=4)
if __name__ == "__main__":
    fresh = debug_launcher(train, made(), 2)
    model, optimizer, loader = made()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    alone = notebook_launcher(train, (model, optimizer, loader), 1)
    model.load_state_dict(start)
    again = debug_launcher(train, (model, optimizer, loader), 2)
    model.load_state_dict(start)
    prepared = Accelerator().prepare(model, optimizer, loader)
    after_prepare = debug_launcher(train, prepared, 2)
    one_more = notebook_launcher(train, prepared, 1)
    print(json.dumps([fresh, alone, again, after_prepare, one_more]))
"""


def test_what_one_process_prepared_is_trained_by_several() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    fresh, alone, again, after_prepare, one_more = json.loads(done.stdout.splitlines()[-1])
    assert fresh[:2] == [2, 2]
    assert fresh[2][0] == fresh[2][1], "the ranks agree"
    assert again == fresh
    assert after_prepare == fresh
    assert alone[:2] == [1, 4]
    assert one_more == alone
