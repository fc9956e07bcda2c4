# Digit classifier, plain MLP.
import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
accelerator = Accelerator()
device = accelerator.device
accelerator.print("Using device:", device)

# hyper-parameters
EPOCHS = 2
BATCH_SIZE = 48
LEARNING_RATE = 0.05
MAX_NORM = 1.0
PRINT_EVERY = 2

# data: 187 images to train on, 147 to test on
digits = load_digits()
X = torch.from_numpy(digits.data).float() / 16
y = torch.from_numpy(digits.target).long()
train_data = TensorDataset(X[:187], y[:187])
test_data = TensorDataset(X[187:334], y[187:334])
trainloader = DataLoader(train_data, batch_size=BATCH_SIZE, shuffle=True)
testloader = DataLoader(test_data, batch_size=32, shuffle=False)

model = nn.Sequential(
    nn.Linear(64, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
model.to(device)

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)

model, optimizer, trainloader = accelerator.prepare(model, optimizer, trainloader)
for epoch in range(EPOCHS):  # every image once per epoch
    running_loss = 0.0
    for i, data in enumerate(trainloader):
        # images and their labels
        inputs, labels = data[0].to(device), data[1].to(device)

        optimizer.zero_grad()

        # clip before the step, after backward
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

        running_loss += loss.item()
        if i % PRINT_EVERY == PRINT_EVERY - 1:
            accelerator.print(
                f"[{epoch + 1}, {i + 1:3d}] loss: {accelerator.reduce(running_loss, 'mean') / PRINT_EVERY:.4f}"
            )
            running_loss = 0.0

accelerator.print("done with training")

PATH = "./digits_mlp.pth"
accelerator.save(model.state_dict(), PATH)

# how well does it do on images it has not seen?
correct = 0
total = 0
model.eval()
testloader = accelerator.prepare_evaluation(testloader)
with torch.no_grad():
    for images, labels in testloader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        _, predicted = torch.max(outputs.data, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()
    total, correct = accelerator.merge(testloader, total, correct)

accelerator.print(f"{correct} of {total} test images right: {100 * correct / total:.2f} %")
