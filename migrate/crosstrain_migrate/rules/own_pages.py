"""The pages of the codes, in the form of `catalogue`; advice for XLA and notebooks have theirs in their modules."""

PAGES = (
    """\
CT001: the result failed the tool's own checks

What:   Every result is read again before it is shown: it must parse, bind every name that it uses, keep every comment
        and its indentation. Edits that fail are left out, and the rest is made; where the core fails, nothing is.
Why:    A conversion nobody can trust is worth less than none.
Leaves: the script as it was. This finding is a defect of the tool: please report the script.
""",
    """\
CT002: a suppression comment that does nothing, or is not understood

What:   A `# migrate: skip`, `off` or `skip-file` that kept no rule away, or a comment that begins like one and is not
        understood.
Why:    A comment that does nothing hides the next mistake, and a misspelled one protects nothing.
Before: `x = 1  # migrate: skpi`
After:  `x = 1  # migrate: skip`
""",
    """\
CT003: a part of the conversion is kept away

What:   A suppression comment, `--select` or `--ignore` keeps a rule away whose edits the rest of the conversion relies
        on (`loss.backward()  # migrate: skip`, say).
Why:    With `prepare` and without `backward` a script trains something else. A script is converted whole or not at all.
Leaves: the script as it was, until the comment goes, the rule is let in, or `# migrate: skip-file` leaves it alone.
""",
    """\
CT004: files that several scripts share

What:   A script is migrated together with the files it imports from its own project. Where two scripts of one run would
        change such a file differently, the second is left as it is; `--no-follow` forbids changes outside of the file
        that was named.
Why:    One file cannot be two. No signature and no meaning changes in a shared file, so scripts that are not migrated
        go on working.
Leaves: every file of that script as it was.
""",
    """\
CT005: what `--todo` leaves to a person

What:   With `--todo` a script that is refused gets a line above each place that needs a person, which says what to write.
        Where the reason concerns one place (CT903), the core of the conversion is made; elsewhere the code stays as it was.
Why:    Half a conversion must not train: such a script stops at its start under several processes, and `--check` fails,
        until these lines are gone.
Before: `from torch.distributed import rpc`
After:  `# TODO(crosstrain CT901): ...` above it
""",
    """\
CT101: import the Accelerator
CT102: make the one Accelerator

What:   `accelerator = Accelerator(...)` at the head of the function that trains, or before the first statement that does
        anything. A function of another file makes its own, which shares the run's state: no signature changes.
        `cpu=` follows the script's own flag.
Why:    It must be there before anything random, before the device is chosen and before `prepare`.

Example CT102 (device):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device
Example CT102 (options):
    no_cuda = False
And (device):
    device = torch.device("cpu" if no_cuda else "cuda")
Becomes (device):
    accelerator = Accelerator(cpu=no_cuda)
    device = accelerator.device
""",
    """\
CT105: a device chosen by hand

What:   What chooses a GPU (`.cuda()`, `"cuda"`, `torch.device("cuda:0")`) becomes the accelerator's device, wherever the
        training reaches it. `x.to(device)` stays: once `device` is the accelerator's it is harmless.
Why:    One process drives one device, and only the launcher knows which.
Leaves: (finding) what needs CUDA and has no counterpart.

Example (model):
    model = nn.Linear(8, 3).cuda()
Becomes (model):
    model = nn.Linear(8, 3).to(accelerator.device)
Stays (model):
    model = nn.Linear(8, 3).to(torch.float32)
""",
    """\
CT201: prepare what trains

What:   What is stepped after a backward, what gives it its parameters, what the training loop iterates and what is
        stepped beside the optimizer is prepared: in one call where one place holds all, otherwise where each is made or
        used. Batches that come from no DataLoader are prepared where the loop reads them. Counts of one process's batches
        and rows that stand beside the numbers of all are counted, or divided, for all.
Why:    Every process trains on its own share, and the gradients are averaged.

Example (optimizer):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Becomes (optimizer):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Stays (setup):
    teacher = nn.Linear(8, 3).eval()
""",
    """\
CT202: backward goes through the accelerator

What:   Every backward pass of a loss that trains, its keyword arguments kept. The loss is taken for a mean over rows unless
        the code shows a sum (`loss_reduction="sum"`); the runtime checks it at the first backward.
Why:    Scaling and accumulation are the accelerator's business, and the gradients are averaged over the processes.
Refuses: gradients by `torch.autograd.grad` alone, which nothing averages.

Example (backward):
    loss.backward(retain_graph=True)
Becomes (backward):
    accelerator.backward(loss, retain_graph=True)
""",
    """\
CT203: clipping goes through the accelerator

What:   `clip_grad_norm_` and `clip_grad_value_` of torch.
Why:    Gradients must be averaged and unscaled before they are clipped.
Leaves: scripts that unscale by hand, whose processes clip the same averaged gradients.

Example (step):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
Becomes (step):
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
Stays (after_step):
    vector = nn.utils.parameters_to_vector(model.parameters())
""",
    """\
CT301: DataParallel

What:   `nn.DataParallel(model)` becomes the model where it is applied; `.module` stays, and the prepared model answers it.
        Where the names with `module.` that it gives to weights may be used, it stays, is prepared, and has one device.
        A batch size times the number of its GPUs is one GPU's where several processes run.
Why:    DataParallel takes all GPUs that it sees, and so would each process.

Example (setup):
    model = nn.DataParallel(model)
Becomes (setup):
    model = accelerator.prepare(model)
And (prepare):
    optimizer, train_loader = accelerator.prepare(optimizer, train_loader)
""",
    """\
CT302: DistributedDataParallel
CT303: torch.distributed by hand
CT304: DistributedSampler
CT305: processes started by hand
CT308: a device chosen by rank
CT309: ranks and sizes of the script's own

What:   A script that distributes itself is mapped where it stands: it joins the launcher's group, its wrapper is `prepare`,
        its device the accelerator's, and the processes that it started are the launcher's. Samplers, rank tests,
        collectives and branches stay: their meaning on several processes is the script's own.
Why:    What its author has tested goes on working, and one command starts it anywhere.
Refuses: RPC, pipelines, tensor parallelism, FSDP by hand; with `--runtime accelerate` every such script.
Before: `dist.init_process_group("nccl")`; `model = DistributedDataParallel(model, device_ids=[rank])`
After:  `PartialState(group_of_one=True, environment=True)`; `model = accelerator.prepare(model)`
""",
    """\
CT401: one process prints
CT402: directories may exist already
CT403: one process writes files
CT404: downloads are there before they are read

What:   `print` becomes `accelerator.print`, and bars are the main process's; `os.makedirs` gets `exist_ok=True`; statements
        that only write files go under `if accelerator.is_main_process:`; downloads under `main_process_first`. All have
        asked for a folder before one makes it, where what the author does depends on it.
Why:    Every process runs the script: the terminal needs each line once, and several writers ruin a file.
Leaves: (finding) what writes and also computes something in which all processes take part.

Example CT401 (after_epoch):
    print(f"epoch {epoch}")  # every line once
Becomes (after_epoch):
    accelerator.print(f"epoch {epoch}")  # every line once
Stays CT401 (end):
    import sys
    print("done", file=sys.stderr)
Example CT402 (imports):
    import os
And (setup):
    os.makedirs("out")
Becomes (setup):
    os.makedirs("out", exist_ok=True)
Example CT403 (end):
    with open("done.txt", "w") as file:
        file.write("done")
Becomes (end):
    if accelerator.is_main_process:
        with open("done.txt", "w") as file:
            file.write("done")
Stays CT403 (setup):
    with open("names.txt") as file:
        names = file.read().split()
Example CT404 (imports):
    from torchvision import datasets, transforms
And (data):
    train_set = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
Becomes (data):
    with accelerator.main_process_first():
        train_set = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
""",
    """\
CT502: what is saved is saved once, whole

What:   `torch.save` becomes `accelerator.save`: the main process writes, and the file is there for every process when the
        call returns. Where a path holds a time or a random name and is read again, every process gets the main process's.
Why:    Several writers ruin a file, and one that is read next must be complete.

Example (after_epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
Becomes (after_epoch):
    accelerator.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
""",
    """\
CT601: an evaluation is dealt by whole batches
CT603: an evaluation that stays whole on every process

What:   An evaluation's loader is dealt to the processes in whole batches, its body stays as it is, and one line behind the
        loop merges what it has added up. Where that is not sure, every process evaluates everything, with a note.
Why:    Each batch is computed once, exactly as the original computes it: faster, and never another number.

Example CT601 (test_data):
    test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
    test_loader = DataLoader(test_set, batch_size=8)
And (after_epoch):
    model.eval()
    right = 0
    for x, y in test_loader:
        right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    print(right / len(test_set))
Becomes (prepare):
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    test_loader = accelerator.prepare_evaluation(test_loader)
And (after_epoch):
    model.eval()
    right = 0
    for x, y in test_loader:
        right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    right = accelerator.merge(test_loader, right)
    accelerator.print(right / len(test_set))
Noted CT603 (test_data):
    test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
    test_loader = DataLoader(test_set, batch_size=8)
And (after_epoch):
    model.eval()
    for x, y in test_loader:
        score = model(x.to(device)).argmax(1).eq(y.to(device)).float().mean()
        if score < 0.5:
            break
""",
    """\
CT602: numbers of training are the global ones

What:   A loss that is shown becomes `accelerator.reduce(loss, "mean")`, sums and counts are added up where they are read.
Why:    A process's own loss is the loss of its share.
Leaves: (finding) a number that has no global form stays each process's own, shown by the main process.

Example (after_step):
    print(loss.item())
Becomes (after_step):
    accelerator.print(accelerator.reduce(loss, "mean").item())
Stays (after_step):
    assert out.shape[1] == 3
""",
    """\
CT605: what decides is the same on all processes

What:   A number that stops the training, skips a step, keeps the best weights or changes the rate, and that may differ by
        process, is averaged over the processes before it decides.
Why:    Processes that decide differently wait for each other, or train different models.
Leaves: (finding) a decision that cannot be made alike.

Example (after_step):
    if loss.item() > 1e6:
        break
Becomes (after_step):
    if accelerator.reduce(loss, "mean").item() > 1e6:
        break
""",
    """\
CT901: built on something that distributes training itself

What:   Frameworks with a trainer of their own are left alone; other distribution libraries, and processes of the script's
        own that share one model, are refused.
Why:    Half a conversion of such a script would train something else.

Refused (imports):
    from torch.distributed.fsdp import fully_shard
And (setup):
    fully_shard(model)
""",
    """\
CT902: every process trains on the same data

What:   Training in which no loop over batches is found that could be dealt, and no step that draws its batch. And a loop
        that looks up rows by the number of its batch, `labels[i]`, in a script that also counts its batches.
Why:    More processes would compute the same thing again.
Before: `loss = criterion(model(features), labels)` of all rows, in every step
After:  (converted; the first line of the summary says so)
""",
    """\
CT903: a line search on a rank's own loss

What:   LBFGS with batches of a loader.
Why:    The loss decides how often LBFGS calls its closure: processes with different losses would wait for each other.

Refused (optimizer):
    optimizer = torch.optim.LBFGS(model.parameters())
And (loss): nothing
And (backward):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
And (step):
    optimizer.step(closure)
""",
    """\
CT904: a seed that a training step sets

What:   Says where the loop over batches seeds the random numbers that it draws.
Why:    In a step each process draws noise of its own; behind such a seed all draw the same until the pass ends.
Leaves: (finding) the line; a seed that is set before the loop needs nothing.

Noted (batch):
    x, y = batch
    torch.manual_seed(epoch)
""",
    """\
CT905: training that no call leads to

What:   A training loop in the script's own file that nothing at its top level comes to, as far as calls can be followed.
Why:    A script that trains is never left without a word: it may be run by a name that is looked up.
Before: `getattr(jobs, sys.argv[1])()`
After:  (untouched; the finding names the loop)
""",
)
