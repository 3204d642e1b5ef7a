"""PyTorch's DistributedDataParallel on Gloo, one rank of several: ddp.py WORKLOAD BATCH FOLDER; ../scale starts it.

FOLDER holds what `ranked --files FOLDER WORKLOAD` writes, BATCH is the size of a rank's batch. The variables of a
launcher say which rank it is. It answers the lines of ../ranked.cpp that begin with "run"; variants are those below.
"""
import copy
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import common


def wide():
    layers = [nn.Linear(784, 1024)]
    for _ in range(7):
        layers += [nn.ReLU(), nn.Linear(1024, 1024)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(1024, 10))


common.WORKLOADS["wide"] = wide, 64, (784,), "adamw"


def optimizer_of(rule, parameters):
    if rule == "adamw":
        return torch.optim.AdamW(parameters, fused=True, **common.ADAMW)
    return torch.optim.SGD(parameters, fused=True, **common.SGD)


class Variant:
    """A network of its own, trained on this rank's slices of the shared batches."""

    def __init__(self, work, rows):
        self.work, self.rows, self.done = work, rows, 0
        net = copy.deepcopy(work.net.net)
        # Without dropout, as on the other side. No other network that evaluates differs from one that trains.
        self.net = net.eval() if work.name == "cnn" else net.train()
        self.model = self.wrapped()
        self.optimizer = optimizer_of(work.rule, list(self.net.parameters()))

    def wrapped(self):
        return self.net

    def after_backward(self):
        pass

    def run(self, steps):
        work = self.work
        for _ in range(steps):
            rows = self.rows[self.done % len(self.rows)]
            self.done += 1
            x, y = work.input.index_select(0, rows), work.target.index_select(0, rows)
            self.optimizer.zero_grad()
            common.loss_of(self.model(x), y).backward()
            self.after_backward()
            self.optimizer.step()


class Overlapped(Variant):
    def wrapped(self):
        return DistributedDataParallel(self.net, gradient_as_bucket_view=True)


class After(Variant):
    def after_backward(self):
        gradients = [p.grad for p in self.net.parameters()]
        flat = torch.cat([g.view(-1) for g in gradients])
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())
        for g, part in zip(gradients, flat.split([g.numel() for g in gradients])):
            g.copy_(part.view_as(g))


class InBf16(Overlapped):
    def wrapped(self):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model = super().wrapped()
        model.register_comm_hook(None, bf16_compress_hook)
        return model


class ZeroStage1(Overlapped):
    def __init__(self, work, rows):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        super().__init__(work, rows)
        rule = dict(adamw=(torch.optim.AdamW, common.ADAMW), sgd=(torch.optim.SGD, common.SGD))[work.rule]
        self.optimizer = ZeroRedundancyOptimizer(self.net.parameters(), rule[0], fused=True, **rule[1])


VARIANTS = dict(py_local=Variant, py_overlapped=Overlapped, py_after=After, py_in_bf16=InBf16, py_zero_1=ZeroStage1)


def rows_of_rank(name, folder, batch, samples):
    """The slices of this rank: those of ranked.cpp."""
    rank, size = dist.get_rank(), dist.get_world_size()
    order = torch.from_numpy(np.fromfile(os.path.join(folder, name + ".order"), np.int64)).view(-1, samples)
    whole = [part for epoch in order for part in epoch.split(batch * size) if len(part) == batch * size]
    return [part[rank * batch : (rank + 1) * batch] for part in whole]


def run(variant, steps):
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    variant.run(steps)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    total = sum(p.detach().double().abs().sum().item() for p in variant.net.parameters())
    return dict(steps=steps, cpu_s=cpu_s, wall_s=wall_s, checksum=total)


def main(name, batch, folder):
    answers = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)  # what libraries print goes to stderr

    def answer(**line):
        print(json.dumps(line), file=answers, flush=True)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work = common.Work(name, folder)
    rows = rows_of_rank(name, folder, batch, len(work.input))
    variants = {}
    answer(ready=True, libtorch=torch.__version__)
    for line in sys.stdin:
        word, *rest = line.split()
        if word != "run":
            break
        if rest[0] not in variants:
            variants[rest[0]] = VARIANTS[rest[0]](work, rows)
        answer(**run(variants[rest[0]], int(rest[1])))
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in common.WORKLOADS:
        sys.exit(f"usage: ddp.py {'|'.join(common.WORKLOADS)} BATCH FOLDER")
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
