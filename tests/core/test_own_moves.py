"""A module with a `cuda()` of its own moves more than its parameters, and is still asked to."""

from .converting import converted, once_more

SCRIPT = """<torch>
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 2)
        self.start = torch.zeros(1, 2)
    def forward(self, x):
        return self.cell(x) + self.start
{own}
class Reader(Memory):
    pass
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = Memory()
        self.memory = self.memory.cuda()
    def forward(self, x):
        return self.memory(x)
def train(rows, with_memory):
    if with_memory:
        model = Reader()
    else:
        model = Whole()
    <model model.cuda()>
    for x, y in DataLoader(rows, 8):
        <step nn.functional.mse_loss(model(x.cuda()), y.cuda())>
    return model
train([], True)
"""
OWN = """
    def cuda(self):
        super().cuda()
        self.start = self.start.cuda()
        return self
"""


def test_its_own_method_is_called_where_there_is_a_gpu() -> None:
    after = converted(SCRIPT.format(own=OWN))
    assert 'model.cuda() if accelerator.device.type == "cuda" else model.to(accelerator.device)' in after
    assert 'self.memory.cuda() if PartialState().device.type == "cuda" else self.memory.to(' in after
    assert "super().to(PartialState().device)" in after, "what the method calls works anywhere"
    assert "self.start = self.start.to(PartialState().device)" in after
    assert "model(x.to(accelerator.device))" in after
    assert once_more(after) == after


def test_a_module_without_such_a_method_moves_to_the_device() -> None:
    after = converted(SCRIPT.format(own=""))
    assert "model = model.to(accelerator.device)" in after and ".cuda()" not in after


def test_its_own_method_is_called_where_it_is_made_and_moved_at_once() -> None:
    text = SCRIPT.format(own=OWN).replace("    model = model.cuda()\n", "")
    after = converted(text.replace("Reader()", "Reader().cuda()"))
    assert 'Reader().cuda() if accelerator.device.type == "cuda" else Reader().to(' in after


def test_a_plain_class_moves_itself_anywhere() -> None:
    """It has no `to()`; what its method calls is moved to the device."""
    table = "class Table:\n    def __init__(self):\n        self.rows = torch.ones(2)\n"
    table += "    def cuda(self):\n        self.rows = self.rows.cuda()\n\n"
    table += "def made():\n    table = Table()\n    return table\n\ntable = made()\ntable.cuda()\n\n"
    text = SCRIPT.format(own="").replace("def train(", table + "def train(")
    after = converted(text)
    assert "\ntable.cuda()\n" in after and "self.rows = self.rows.to(" in after
    given = text.replace("\ntable.cuda()\n", "\ndef bring(it):\n    it.cuda()\n\nbring(table)\n")
    assert "    it.cuda()\n" in converted(given)
    assert "    it.to(" in converted(given.replace("bring(table)", "bring(nn.Linear(1, 1))"))
    both = text.replace("    def cuda(self):", "    def to(self, device): ...\n    def cuda(self):")
    assert "table.to(" in converted(both)


def test_an_object_calls_its_own_method() -> None:
    """It may move what it is given; where the class has none, `self.cuda()` is the module's."""
    own = """
    def cuda(self, *tensors):
        return [one.cuda() for one in tensors]
    def moved(self, x):
        return self.cuda(x, self.start)
"""
    text = SCRIPT.replace("model(x.cuda())", "model(*model.moved(x))")
    after = converted(text.format(own=own))
    assert "return self.cuda(x, self.start)" in after and "[one.to(PartialState().device) for" in after
    own = own.replace("def cuda", "def gpu").replace("x, self.start)", ")")
    assert "return self.to(PartialState().device)" in converted(text.format(own=own))
