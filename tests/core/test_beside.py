"""Where something is has a number on a GPU alone."""

from .converting import converted
from .support import each_row

BESIDE = """<torch>
<model>
for x, y in DataLoader([], 8):
    {line}
    <step (model(x) * extra).mean()>
"""


@each_row("""
line => after
extra = torch.tensor(2.0, device=x.get_device()) => device=x.device)
extra = torch.tensor(2.0).to(x.get_device()) => .to(x.device)
extra = torch.tensor(2.0, device=x.get_device() if x.is_cuda else 'cpu') => x.get_device() if
at = x.device; extra = torch.ones(2, device=torch.device(at.type, at.index)) => torch.device(at.type, at.index))
extra = x.get_device() + 1 => extra = x.get_device() + 1  # a number
""")
def test_a_device_by_its_number_is_one_on_a_cpu_too(line: str, after: str) -> None:
    assert after in converted(BESIDE.format(line=line))


LOADED = """<torch>
<model>
<loop>
torch.save(model, "best.pt")
{lines}
print(model(torch.rand(1, 4)))
"""


@each_row(r"""
lines => after
model = torch.load("best.pt") => torch.load("best.pt", map_location=accelerator.device)
model = torch.load("best.pt", map_location="cpu") => torch.load("best.pt", map_location="cpu")
model = torch.load("best.pt")\nmodel = model.cuda() => torch.load("best.pt")  # moved below
best = torch.load("b.pt")\nbest.eval() => torch.load("b.pt", map_location=accelerator.device)
def test(net):\n    net.eval()\n\nbest = torch.load("b.pt")\ntest(best)
=> torch.load("b.pt", map_location=accelerator.device)
state = torch.load("best.pt")\nmodel.load_state_dict(state) => torch.load("best.pt")
if args:\n    kept = torch.load("b.pt")\n    model = kept["net"]\nelse:\n    model = model.cuda()
=> torch.load("b.pt", map_location=accelerator.device)
kept = torch.load("b.pt")\nmodel = kept["net"]\noptimizer = kept["o"]\nmodel = model.cuda()\n<loop>
=> torch.load("b.pt", map_location=accelerator.device)
kept = torch.load("b.pt")\nmodel.load_state_dict(kept["net"]) => torch.load("b.pt")
kept = torch.load("b.pt")\nmodel = kept["net"]\ntorch.set_rng_state(kept["rng"]) => torch.load("b.pt")
""")
def test_a_whole_model_is_loaded_to_its_process_s_device(lines: str, after: str) -> None:
    assert f"= {after}\n" in converted(LOADED.format(lines=lines))
