"""Who calls a method is known by its name only, and a project may have many of one name."""

from __future__ import annotations

from .converting import converted


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
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in DataLoader(rows, 8):
            <self.step loss = torch.nn.functional.mse_loss(self.model(x), y)>
            self.show(loss)
        self.save(loss)
"""
    head = "import torch\nfrom torch.utils.data import DataLoader\n\nrows = []\n"
    text = head + "".join(kind.format(i) for i in range(30)) + "\nNet0().train()\n"
    assert "accelerator.backward(loss)" in converted(text)
