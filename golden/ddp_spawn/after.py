import argparse
import os
import random
import shutil

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description='Digits on no GPU, one GPU, or all of them')
parser.add_argument('-j', '--workers', default=0, type=int, help='worker processes of the loaders')
parser.add_argument('--epochs', default=20, type=int)
parser.add_argument('-b', '--batch-size', default=128, type=int,
                    help='images in one step, over all GPUs of this machine')
parser.add_argument('--images', default=1400, type=int, help='how many images to train on')
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--wd', default=1e-4, type=float, dest='weight_decay')
parser.add_argument('-p', '--print-freq', default=10, type=int)
parser.add_argument('--world-size', default=1, type=int, help='how many machines')
parser.add_argument('--rank', default=0, type=int, help='which of the machines this one is')
parser.add_argument('--dist-url', default='tcp://127.0.0.1:23456', type=str)
parser.add_argument('--dist-backend', default='nccl', type=str)
parser.add_argument('--seed', default=None, type=int, help='makes a run repeatable')
parser.add_argument('--gpu', default=None, type=int, help='train on this GPU only')
parser.add_argument('--multiprocessing-distributed', action='store_true',
                    help='start a process for every GPU of this machine', default="RANK" in os.environ)

best_acc1 = 0


def main():
    args = parser.parse_args()

    accelerator = Accelerator(device=args.gpu)
    PartialState(group_of_one=True)
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True

    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    ngpus_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))

    if args.multiprocessing_distributed:
        # counts machines until here, processes from here on
        args.world_size = PartialState().num_processes
        main_worker(PartialState().local_process_index, ngpus_per_node, args)
    else:
        main_worker(args.gpu, ngpus_per_node, args)


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, 10),
    )


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    accelerator = Accelerator()
    args.gpu = gpu

    if args.gpu is not None:
        print('training on GPU', args.gpu)

    if args.distributed:
        if args.multiprocessing_distributed:
            args.rank = PartialState().process_index

    model = make_model()
    if args.distributed and torch.cuda.is_available():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

    if not torch.cuda.is_available():
        print('no GPU here, training on the CPU')
    elif args.distributed:
        if args.gpu is not None:
            torch.cuda.set_device(accelerator.device)
            model.to(accelerator.device)
            # the processes of a machine share its batch and its workers
            args.batch_size = args.batch_size // ngpus_per_node
            args.workers = -(-args.workers // ngpus_per_node)
            model = accelerator.prepare(nn.parallel.DistributedDataParallel(model))
        else:
            model.to(accelerator.device)
            model = accelerator.prepare(nn.parallel.DistributedDataParallel(model))
    elif args.gpu is not None:
        torch.cuda.set_device(accelerator.device)
        model = model.to(accelerator.device)
    else:
        model = accelerator.prepare(nn.DataParallel(model)).to(accelerator.device)

    if torch.cuda.is_available():
        device = accelerator.device
    else:
        device = accelerator.device

    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    train_dataset = torch.utils.data.TensorDataset(x[:args.images], y[:args.images])
    val_dataset = torch.utils.data.TensorDataset(x[-147:], y[-147:])

    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    else:
        train_sampler = None
        val_sampler = None

    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=torch.cuda.is_available(), sampler=train_sampler)

    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False,
        num_workers=args.workers, pin_memory=torch.cuda.is_available(), sampler=val_sampler)

    optimizer = accelerator.prepare(optimizer)
    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)

        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, device, args)
        scheduler.step()

        is_best = acc1 > best_acc1
        if is_best:
            best_acc1 = acc1

        # one process of every machine writes
        if not args.multiprocessing_distributed or args.rank % ngpus_per_node == 0:
            save_checkpoint({
                'next_epoch': epoch + 1,
                'state_dict': model.state_dict(),
                'best_acc1': best_acc1,
                'optimizer': optimizer.state_dict(),
                'scheduler': scheduler.state_dict(),
            }, is_best)


def train(train_loader, model, criterion, optimizer, epoch, device, args):
    accelerator = Accelerator()
    model.train()
    for i, (images, target) in enumerate(train_loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)

        output = model(images)
        loss = criterion(output, target)

        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

        if i % args.print_freq == 0:
            print('epoch {} batch {} of {}: loss {:.4f}'.format(epoch, i + 1, len(train_loader), loss.item()))


def validate(val_loader, model, criterion, device, args):
    model.eval()
    correct = torch.zeros(1, device=device)
    total = torch.zeros(1, device=device)
    with torch.no_grad():
        for images, target in val_loader:
            images = images.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            output = model(images)
            correct += (output.argmax(1) == target).sum()
            total += target.size(0)
    if args.distributed:
        dist.all_reduce(correct)
        dist.all_reduce(total)
    acc1 = (100 * correct / total).item()
    print('validation accuracy {:.3f}'.format(acc1))
    return acc1


def save_checkpoint(state, is_best, filename='last.pth.tar'):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, 'best.pth.tar')


if __name__ == '__main__':
    main()
