"""What all contenders in Python share: the networks, batches and update rules of ../contender/workload.cpp, the probe
that times a step, and the lines that ../drive.py and a contender exchange.

A contender is a function make(work) that returns train(steps): that many more steps on work.net with work.optimizer, by
the framework's own loop, over work.batches(steps).

A step is the time from one entry of the network's forward to the next, so it holds all that a framework does between
two batches, and none of its code is touched. What it does before the first batch and after the last is not counted. A
compiled step has no such entry: it notes the time before each call.
"""
import gc
import json
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from networks import Cnn, Gpt, ResNet

MEAN, STDDEV = 0.2860, 0.3530
ADAMW = dict(lr=1e-3, weight_decay=1e-2)
SGD = dict(lr=0.05, momentum=0.9, weight_decay=5e-4)


WORKLOADS = {  # network, samples of a batch, shape of a sample, update rule
    "mlp": (lambda: nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)), 32, (784,), "adamw"),
    "cnn": (Cnn, 64, (1, 28, 28), "adamw"),
    "resnet20": (lambda: ResNet(1, 16, (3, 3, 3), True), 128, (1, 28, 28), "sgd"),
    "resnet18": (lambda: ResNet(3, 64, (2, 2, 2, 2), False), 64, (3, 32, 32), "adamw"),
    "gpt": (Gpt, 16, (128,), "adamw"),
}


class Probed(nn.Module):
    """Notes when each forward pass begins: on the wall, and in processor time."""

    def __init__(self, net):
        super().__init__()
        self.net, self.wall, self.cpu = net, [], []

    def note(self):
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def forward(self, x):
        if self.training:
            self.note()
        return self.net(x)


def loss_of(logits, target):
    if logits.dim() == 3:
        logits, target = logits.flatten(0, 1), target.flatten()
    return F.cross_entropy(logits, target)


def update_in_place(rule, parameters):
    """The optimizer's step by hand, on tensors alone, for those that compile it."""
    zeros = [torch.zeros_like(p) for p in parameters]
    first, second, done = zeros, [z.clone() for z in zeros], torch.zeros(())

    @torch.no_grad()
    def adamw(gradients):
        rate, decay = ADAMW["lr"], 1 - ADAMW["lr"] * ADAMW["weight_decay"]
        done.add_(1)
        scale, root = rate / (1 - 0.9**done), (1 - 0.999**done).rsqrt()
        for p, g, m, v in zip(parameters, gradients, first, second):
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.mul_(decay).sub_(scale * m / (v.sqrt() * root + 1e-8))

    @torch.no_grad()
    def sgd(gradients):
        for p, g, m in zip(parameters, gradients, first):
            m.mul_(SGD["momentum"]).add_(g + SGD["weight_decay"] * p)
            p.sub_(SGD["lr"] * m)

    return adamw if rule == "adamw" else sgd


# ----------------------------------------------------------------------------------------------------------------- work
class Work:
    def __init__(self, name, folder):
        self.name = name
        make_net, self.batch_size, shape, self.rule = WORKLOADS[name]
        stem = os.path.join(folder, name)
        pixels = name != "gpt"
        inputs = torch.from_numpy(np.fromfile(stem + ".input", np.uint8 if pixels else np.int64)).view(-1, *shape)
        self.input = inputs.float().div_(255).sub_(MEAN).div_(STDDEV) if pixels else inputs
        target = torch.from_numpy(np.fromfile(stem + ".target", np.int64))
        self.target = target if pixels else target.view(-1, *shape)
        order = torch.from_numpy(np.fromfile(stem + ".order", np.int64)).view(-1, len(self.input))
        self.rows = [r for epoch in order for r in epoch.split(self.batch_size) if len(r) == self.batch_size]
        self.done = 0  # steps
        self.net = Probed(make_net())
        weights, at = torch.from_numpy(np.fromfile(stem + ".weights", np.float32)), 0
        with torch.no_grad():
            for p in self.net.parameters():
                p.copy_(weights[at : at + p.numel()].view_as(p))
                at += p.numel()
        if at != len(weights):
            raise RuntimeError(f"{name}: {at} parameters, but {len(weights)} weights")

    def optimizer(self, **more):
        if self.rule == "adamw":
            return torch.optim.AdamW(self.net.parameters(), **ADAMW, **more)
        return torch.optim.SGD(self.net.parameters(), **SGD, **more)

    def rows_of(self, number):
        return self.rows[number % len(self.rows)]

    def batch(self, number):
        rows = self.rows_of(number)
        return self.input.index_select(0, rows), self.target.index_select(0, rows)

    def batches(self, steps):
        return Batches(self, steps)

    def data_bytes(self):
        return sum(t.numel() * t.element_size() for t in (self.input, self.target))


class Batches:
    """So many of the shared batches, from where training is; each is gathered by one operator."""

    def __init__(self, work, steps):
        self.work, self.steps, self.batch_size = work, steps, work.batch_size

    def __len__(self):
        return self.steps

    def __iter__(self):
        return (self.work.batch(number) for number in range(self.work.done, self.work.done + self.steps))


class BatchDataset(torch.utils.data.Dataset):
    """The same for those who insist on a DataLoader: give it batch_size=None."""

    def __init__(self, work, steps):
        self.work, self.steps = work, steps

    def __len__(self):
        return self.steps

    def __getitem__(self, i):
        return self.work.batch(self.work.done + i)


# ---------------------------------------------------------------------------------------------------------------- lines
def memory(field):
    """A line of /proc/self/status, in MiB."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) / 1024 for line in status if line.startswith(field + ":")), 0)


def run(work, train, steps):
    gc.collect()
    torch.manual_seed(work.done)  # for dropout
    wall, cpu = work.net.wall, work.net.cpu
    wall.clear(), cpu.clear()
    train(steps)
    work.done += steps
    if len(wall) != steps:
        raise RuntimeError(f"{len(wall)} steps instead of {steps}")
    total = sum(p.detach().double().abs().sum().item() for p in work.net.parameters())
    return dict(steps=steps - 1, cpu_s=cpu[-1] - cpu[0], wall_s=wall[-1] - wall[0], checksum=total)


def serve(name, folder, load):
    """load() imports a framework and gives (make, versions). What frameworks print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)

    def answer(**line):
        print(json.dumps(line), file=answers, flush=True)

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        make, versions = load()
    except ImportError as error:
        return answer(missing=str(error))
    work = Work(name, folder)
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak is that of training
    except OSError:
        pass
    before = memory("VmRSS")
    try:
        train = make(work)
    except NotImplementedError as error:
        return answer(missing=str(error))
    answer(ready=True, libtorch=torch.__version__, threads=torch.get_num_threads(), versions=versions,
           data_mib=work.data_bytes() / 2**20, before_mib=before, notes=[])
    for line in sys.stdin:
        word, *rest = line.split()
        if word != "run":
            break
        answer(**run(work, train, int(rest[0])))
    answer(peak_mib=memory("VmHWM"), cached_mib=0)
