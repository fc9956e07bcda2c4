import argparse
import os

import torch
import torch.nn as nn
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

try:
    from apex import amp
    HAS_APEX = True
except ImportError:
    HAS_APEX = False

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--bs', type=int, default=64)
parser.add_argument('--fp16', action='store_true', help='mixed precision with apex')
parser.add_argument('--opt_level', type=str, default='O1', help="apex: 'O0', 'O1', 'O2' or 'O3'")
parser.add_argument('--local_rank', type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
args = parser.parse_args()


def setup():
    if args.local_rank == -1:
        device = PartialState().device
    else:
        if torch.cuda.is_available():
            torch.cuda.set_device(PartialState().device)
        device = PartialState().device
        PartialState(group_of_one=True)
    args.device = device
    if args.fp16 and not HAS_APEX:
        raise ImportError('--fp16 needs apex')


def loaders():
    data, target = load_digits(return_X_y=True)
    data, target = torch.Tensor(data).div(16), torch.LongTensor(target)
    train = TensorDataset(data[:1391], target[:1391])
    test = TensorDataset(data[1391:], target[1391:])
    sampler = RandomSampler(train) if args.local_rank == -1 else DistributedSampler(train)
    return DataLoader(train, args.bs, sampler=sampler), DataLoader(test, args.bs)


def main():
    accelerator = Accelerator()
    setup()
    torch.manual_seed(27)
    train_loader, test_loader = loaders()

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model.to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
    # the order matters: amp first, then the wrapper
    if args.local_rank != -1:
        model = accelerator.prepare(model)

    optimizer = accelerator.prepare(optimizer)
    for epoch in range(args.epochs):
        model.train()
        tr_loss, steps = 0.0, 0
        for batch in train_loader:
            x, y = tuple(t.to(args.device) for t in batch)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    accelerator.backward(scaled_loss)
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            else:
                accelerator.backward(loss)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            tr_loss += loss.item()
            steps += 1

        model.eval()
        right = 0
        for batch in test_loader:
            x, y = tuple(t.to(args.device) for t in batch)
            with torch.no_grad():
                right += (model(x).argmax(1) == y).sum().item()

        if args.local_rank in [-1, 0]:
            print('epoch %d loss %.4f accuracy %.4f' % (epoch, tr_loss / steps, right / len(test_loader.dataset)))

    if args.local_rank in [-1, 0]:
        model_to_save = model.module if hasattr(model, 'module') else model
        torch.save(model_to_save.state_dict(), 'digits.bin')


if __name__ == '__main__':
    main()
