"""Everything that is chosen, in one place."""

EPOCHS = 2
BATCH_SIZE = 48
LEARNING_RATE = 0.2
CHECKPOINT = "digits.pt"
