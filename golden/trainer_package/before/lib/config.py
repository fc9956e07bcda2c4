"""Everything that is chosen, in one place."""
import torch

EPOCHS = 2
BATCH_SIZE = 48
LEARNING_RATE = 0.2
CHECKPOINT = "digits.pt"

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
