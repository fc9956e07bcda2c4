class Average:
    """Mean of everything it was given, weighted."""

    def __init__(self):
        self.total, self.weight = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.weight += n

    @property
    def value(self):
        return self.total / max(self.weight, 1)
