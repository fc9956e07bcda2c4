"""torchnet, as far as scripts count with it."""
