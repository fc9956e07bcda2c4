"""Scripts whose ways multiply are planned in time: each function and each value is asked once."""

from .converting import conversion, converted


def test_many_classes_whose_methods_have_the_same_names() -> None:
    """Each function is asked once, not once for each way to it."""
    kind = """
class Net{0}:
    def show(self, loss):
        if loss.item() < 0.1:
            print("small", loss.item())
        self.note(loss)
    def note(self, loss):
        self.save(loss)
        self.show(loss)
    def save(self, loss):
        self.show(loss)
        self.note(loss)
    def train(self):
        <self.model>
        for x, y in DataLoader(rows, 8):
            <self.step loss = torch.nn.functional.mse_loss(self.model(x), y)>
            self.show(loss)
        self.save(loss)
"""
    text = "<torch>\nrows = []\n" + "".join(kind.format(i) for i in range(30)) + "\nNet0().train()\n"
    assert "accelerator.backward(loss)" in converted(text)


def test_several_layers_under_a_test_of_rows_are_planned_in_time() -> None:
    """The values of a variable that is bound again and again are asked for once each."""
    layers = "".join(f"        x = torch.relu(self.l{n}(x))\n" for n in range(28))
    made = "".join(f"        self.l{n} = torch.nn.Linear(2, 2)\n" for n in range(28))
    text = f"""
<torch>
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
{made}
    def forward(self, x):
{layers}
        if x.shape[0] > 1:
            x = x + torch.randn(2).cuda()
        return x
<model Net().cuda()>
for x in DataLoader(torch.randn(8, 2), batch_size=2):
    <step model(x.cuda()).mean()>
"""
    assert conversion(text).trains


def test_functions_that_all_call_each_other_are_planned_in_time() -> None:
    """What a function writes is asked of each that it reaches once; `return ()` beside one value is no pair."""
    calls = "".join(f"    f{n}(x)\n" for n in range(16))
    helpers = "".join(f"def f{n}(x):\n{calls}    return x if x else ()\n" for n in range(16))
    text = f"""
<torch>
{helpers}
def state(x):
    if not x:
        return ()
    return x
f0(state(1))
torch.save([], "start.pt")
<model>
<loop>
"""
    assert 'accelerator.save([], "start.pt")' in converted(text)


def test_a_loop_that_goes_on_from_its_own_variable() -> None:
    """`range(epoch, 3)` is asked for the epoch above the loop, not for its turns again."""
    text = (
        "<torch>\n<model>\nepoch = len(rows)\nfor epoch in range(epoch, 3):\n    <loop>\n    print(epoch)\n"
    )
    assert "for epoch in range(epoch, 3):" in converted(text)


def test_a_variable_that_is_bound_to_a_part_of_its_own() -> None:
    """`at = at.data` is asked for what it was above, not for `at.data.data` and so on."""
    move = "def move(x, at):\n    at = at.data\n    return x.cuda(at.number)\n"
    assert "return x.to(" in converted(f"<torch>\n{move}<model>\nmove(model, rows)\n<loop>\n")
