"""Everything that is chosen, in one place."""
import torch
from crosstrain import PartialState

EPOCHS = 2
BATCH_SIZE = 48
LEARNING_RATE = 0.2
CHECKPOINT = "digits.pt"

device = PartialState().device
