#!/usr/bin/env python3
"""What ../bench_gpu.cpp measures, in PyTorch: the same networks, sizes, precisions, layouts and update rules, on batches
that lie on the device.

    gpu.py [--only TEXT] [--seconds N] [--json FILE]   on the first CUDA device
    gpu.py --device cpu --tiny                         small networks on the CPU, which shows that the script works

eager: as one writes it. compile: forward and loss by torch.compile. compile_graphs: the same with mode="reduce-overhead",
which records CUDA graphs. The update is torch.optim's with fused=True in all of them. Each is a process of its own; those
of a workload are started together, so that they compile at the same time, and are then measured in turns.
The exit status is 1 if one of them failed, or if losses differ by more than rounding.
"""
import argparse
import json
import math
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BATCHES, FIRST_STEPS, COMPARED_STEPS, ROUNDS, HOST_STEPS = 4, 10, 6, 5, 5
VARIANTS = ["eager", "compile", "compile_graphs"]
NAMES = ["mlp", "resnet20", "resnet20_channels_last", "resnet18", "gpt", "resnet50"]
ADAMW = dict(lr=1e-3, weight_decay=1e-2)
SGD = dict(lr=0.001, momentum=0.9, weight_decay=5e-4)
PEAKS = {"H100 80GB HBM3": (989.5e12, 494.5e12), "H200": (989.5e12, 494.5e12)}  # operations per second: bf16, TF32


class Workload:
    def __init__(self, name, tiny):
        self.name, self.tiny, self.text = name, tiny, name == "gpt"
        self.bf16, self.is_resnet20 = name in ("resnet18", "resnet50", "gpt"), name.startswith("resnet20")
        self.classes = 10 if tiny or name == "mlp" or self.is_resnet20 else 1000
        side = 48 if tiny else 224
        full, small, self.sample, self.rule = {
            "mlp": (512, 32, (784,), "adamw"),
            "resnet20": (256, 8, (1, 28, 28), "sgd"),
            "resnet20_channels_last": (256, 8, (1, 28, 28), "sgd"),
            "resnet18": (256, 8, (3, side, side), "sgd"),
            "gpt": (8, 4, (32 if tiny else 1024,), "adamw"),
            "resnet50": (128, 8, (3, side, side), "sgd"),
        }[name]
        self.batch_size = small if tiny else full
        self.gpt = dict(vocabulary=64, tokens=32, width=32, depth=2, heads=2) if tiny else \
            dict(vocabulary=50304, tokens=1024, width=768, depth=12, heads=12)
        if self.text:
            self.classes = self.gpt["vocabulary"]
        self.channels_last = name in ("resnet18", "resnet20_channels_last", "resnet50")
        self.items = self.batch_size * (self.sample[0] if self.text else 1)
        self.item = "tokens" if self.text else "samples" if name == "mlp" else "images"

    def __str__(self):
        return (f"batch {self.batch_size} of {'x'.join(map(str, self.sample))}, {'amp_bf16' if self.bf16 else 'fp32'}"
                f"{', channels last' if self.channels_last else ''}, "
                f"{'AdamW' if self.rule == 'adamw' else 'SGD with momentum'}")


# ---------------------------------------------------------------------------------------------------------- a contender
def fresh_net(work):
    import torch
    from torch import nn

    import networks

    torch.manual_seed(0)
    if work.name == "mlp":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    if work.is_resnet20:
        return networks.ResNet(1, 16, (3, 3, 3), True)
    if work.text:
        net = networks.Gpt(**work.gpt, tied=True)
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                shrink = (2 * work.gpt["depth"]) ** 0.5 if name.endswith("_proj.weight") else 1
                nn.init.normal_(parameter, 0, 0.02 / shrink)
        return net
    deep = work.name == "resnet50"
    net = networks.ResNet(3, 64, (3, 4, 6, 3) if deep else (2, 2, 2, 2), False, work.classes, deep)
    for parameter in net.parameters():
        if parameter.dim() == 4:
            nn.init.kaiming_normal_(parameter, 0, "fan_out", "relu")
    return net


def random_batches(work, device):
    import torch

    torch.manual_seed(1)
    batches = []
    for _ in range(BATCHES):
        shape = (work.batch_size, *work.sample)
        if work.text:
            x, y = (torch.randint(work.classes, shape, device=device) for _ in range(2))
        else:
            x = torch.randn(shape, device=device)
            if work.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            y = torch.randint(work.classes, (work.batch_size,), device=device)
        batches.append((x, y))
    return batches


class Contender:
    def __init__(self, work, variant, device):
        import torch
        from torch.nn import functional as F

        torch.set_float32_matmul_precision("high")  # TF32, as in the others
        torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
        self.device, self.next, self.torch = device, 0, torch
        net = fresh_net(work).to(device).train()
        if work.channels_last:
            net = net.to(memory_format=torch.channels_last)
        self.parameters = sum(p.numel() for p in net.parameters())
        rule, options = (torch.optim.AdamW, ADAMW) if work.rule == "adamw" else (torch.optim.SGD, SGD)
        self.optimizer = rule(net.parameters(), **options, fused=True)
        self.batches = random_batches(work, device)

        def loss_of(x, y):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=work.bf16):
                logits = net(x)
                if logits.dim() == 3:
                    return F.cross_entropy(logits.flatten(0, 1), y.flatten())
                return F.cross_entropy(logits, y)

        self.graphs = variant == "compile_graphs" and device == "cuda"
        if variant == "compile":
            loss_of = torch.compile(loss_of)
        elif variant == "compile_graphs":
            loss_of = torch.compile(loss_of, mode="reduce-overhead")
        self.loss_of, self.loss = loss_of, None

    def step(self):
        x, y = self.batches[self.next % BATCHES]
        self.next += 1
        self.loss = None  # in a graph's memory, which this step writes
        if self.graphs:
            self.torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def start(self):
        begin, losses = time.perf_counter(), []
        for _ in range(FIRST_STEPS):
            self.step()
            losses.append(self.loss.item())
        facts = dict(losses=losses, start_s=time.perf_counter() - begin, parameters=self.parameters)
        if self.device == "cuda":
            cuda = self.torch.cuda
            data = sum(t.nbytes for batch in self.batches for t in batch)
            facts["allocated_mib"] = (cuda.max_memory_allocated() - data) / 2**20
            facts["reserved_mib"] = (cuda.max_memory_reserved() - data) / 2**20
            facts["device"] = cuda.get_device_name()
        return facts

    def count_flops(self):
        from torch.utils.flop_counter import FlopCounterMode

        try:
            with FlopCounterMode(display=False) as counter:
                self.step()
            return counter.get_total_flops()
        except Exception as error:  # the table lacks a column then
            print(f"operations are not counted: {error}", file=sys.stderr)
            return 0

    def time_of(self, steps):
        """Milliseconds of a step."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) * 1e3 / steps

    def host_times(self):
        """Until a step returns, each with an empty queue."""
        times = []
        for _ in range(HOST_STEPS):
            self.wait()
            begin = time.perf_counter()
            self.step()
            times.append((time.perf_counter() - begin) * 1e3)
        self.wait()
        return times


def serve(name, variant, device, tiny):
    """Says what start() and the versions are; then answers the lines `time STEPS`, `host` and `flops` until its input ends."""
    answers = os.fdopen(os.dup(1), "w", 1)
    os.dup2(2, 1)  # for whatever compilers print

    def answer(**line):
        print(json.dumps(line), file=answers, flush=True)

    import torch

    contender = Contender(Workload(name, tiny), variant, device)
    answer(**contender.start(), torch=torch.__version__)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "time":
            answer(ms=contender.time_of(int(rest[0])))
        elif word == "host":
            answer(ms=contender.host_times())
        else:
            answer(flops=contender.count_flops())


# ------------------------------------------------------------------------------------------------------------- measuring
class Failed(Exception):
    pass


class Child:
    def __init__(self, name, variant, options):
        self.variant, self.ms, self.host, self.note, self.facts = variant, [], [], "", None
        command = [sys.executable, os.path.abspath(__file__), "--serve", name, variant, "--device", options.device]
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": str(max(1, (os.cpu_count() or 2) // 2)), **os.environ}
        self.process = subprocess.Popen(command + ["--tiny"] * options.tiny, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, start_new_session=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def hear(self, seconds):
        try:
            line = self.lines.get(timeout=max(0.1, seconds))
        except queue.Empty:
            raise Failed(f"no answer within {max(0.1, seconds):.0f} s") from None
        if line is None:
            self.process.wait()
            self.errors.seek(0)
            said = [one for one in self.errors.read().splitlines() if one.strip()]
            telling = [one for one in said if "Error" in one]
            raise Failed(f"ended with status {self.process.returncode}: " + " | ".join((telling or said)[-3:])[:600])
        return json.loads(line)

    def ask(self, text, seconds):
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # hear() says how it ended
        return self.hear(seconds)

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # its own group, with its compilers
            self.process.wait()

    def lives(self):
        return not self.note

    def attempt(self, act):
        """What goes wrong with one costs that one."""
        if not self.lives():
            return None
        try:
            return act()
        except (Failed, ValueError) as error:
            self.note = f"failed: {error}"
            self.end()
            return None


def measure(name, options, left):
    work = Workload(name, options.tiny)
    children = [Child(name, variant, options) for variant in options.variants]
    try:
        until = time.monotonic() + min(options.compile_seconds, left())
        for child in children:
            child.facts = child.attempt(lambda: child.hear(until - time.monotonic()))
        flops = next((counted["flops"] for child in children if child.variant == "eager"
                      for counted in [child.attempt(lambda: child.ask("flops", 60))] if counted), 0)
        slowest, round_ms = 0, (200 if options.tiny else 2000) / ROUNDS
        for child in children:
            guess = child.attempt(lambda: child.ask("time 3", 120))
            if guess:
                steps = min(max(2, int(round_ms / 4 / guess["ms"])), 1000)
                again = child.attempt(lambda: child.ask(f"time {steps}", 120))
                slowest = max(slowest, again["ms"] if again else 0)
        steps = min(max(3, int(round_ms / slowest)), 5000) if slowest else 3
        order, chance, rounds = list(children), random.Random(17), 0
        while rounds < ROUNDS and (rounds == 0 or left() > 0):
            chance.shuffle(order)
            for child in order:
                timed = child.attempt(lambda: child.ask(f"time {steps}", 120))
                host = child.attempt(lambda: child.ask("host", 120))
                if timed and host:
                    child.ms.append(timed["ms"])
                    child.host += host["ms"]
            rounds += 1
    finally:
        for child in children:
            child.end()
    return work, children, flops, f"{rounds} rounds of {steps} steps"


def peak_of(device, bf16):
    return next((peaks[0 if bf16 else 1] for part, peaks in PEAKS.items() if device and part in device), 0)


def report(work, children, flops, rounds, results):
    known = [child.facts for child in children if child.facts]
    parameters = known[0]["parameters"] if known else 0
    peak = peak_of(known[0].get("device"), work.bf16) if known else 0
    first = children[0]
    print(f"{work.name}: {parameters} parameters, {work}" + (f", {flops * 1e-9:.4g} GFLOP a step" if flops else "")
          + f"; {rounds}")
    print(f"  {'':14} {'ms a step':>9} {'(all rounds)':>19} {work.item + '/s':>11} {'host, ms':>9} {'of first':>8} "
          f"{'peak MiB':>9} {'reserved':>9} {'TFLOP/s':>8} {'MFU':>6} {'loss':>9} {'apart':>9} {'start, s':>9}")
    tolerance, same = (0.2 if work.tiny else 2e-2) if work.bf16 else 2e-3, True  # as ../bench_gpu.cpp
    for child in children:
        if not child.ms or not child.facts:
            print(f"  {child.variant:14} not measured")
        else:
            facts, ms = child.facts, statistics.median(child.ms)
            ratios = [mine / its for mine, its in zip(child.ms, first.ms)]
            ratio = statistics.median(ratios) if ratios else None
            pairs = list(zip(facts["losses"], known[0]["losses"]))[:COMPARED_STEPS]
            apart = max(abs(mine - its) / abs(its) for mine, its in pairs)
            apart = apart if math.isfinite(apart) else 1e9
            same = same and apart <= tolerance
            rate = flops / ms * 1e3
            number = lambda value, width, digits: f"{'-':>{width}}" if not value else f"{value:{width}.{digits}f}"
            print(f"  {child.variant:14} {ms:9.4f} {min(child.ms):9.4f} {max(child.ms):9.4f} {work.items / ms * 1e3:11.0f} "
                  f"{statistics.median(child.host):9.4f} {number(ratio, 8, 3)} {number(facts.get('allocated_mib'), 9, 0)} "
                  f"{number(facts.get('reserved_mib'), 9, 0)} {number(rate * 1e-12, 8, 2)} "
                  f"{number(rate / peak if peak else 0, 6, 3)} {facts['losses'][-1]:9.5f} {apart:9.1e} "
                  f"{facts['start_s']:9.1f}" + ("" if apart <= tolerance else "  DIFFERS"))
            results[f"{work.name}, {child.variant}"] = {
                "value": ms * 1e3, "unit": "us", "fastest": min(child.ms) * 1e3, "slowest": max(child.ms) * 1e3,
                "host": statistics.median(child.host) * 1e3, "items_per_second": work.items / ms * 1e3, "items": work.item,
                "of_first": ratio, "flops": flops, "peak_flops_per_second": peak, "loss_apart": apart, **facts}
        if child.note:
            same = False
            print(f"    {child.note}")
            results.setdefault("failed", {})[f"{work.name}, {child.variant}"] = child.note
    print(flush=True)
    return same


def write(file, results):
    if not file:
        return
    with open(file + ".new", "w") as out:
        json.dump(results, out, indent=1)
        out.write("\n")
    os.replace(file + ".new", file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="", help="workloads with this in their name")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--seconds", type=float, default=1e9, help="for all")
    parser.add_argument("--compile-seconds", type=float, default=150, help="for the start of a workload's contenders")
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve, options.device, options.tiny)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no contender is left over
    begin, right, results = time.monotonic(), True, {}
    left = lambda: options.seconds - (time.monotonic() - begin)
    for name in NAMES:
        if options.only not in name:
            continue
        if left() < 20:
            print(f"{name}: not measured, the time is up")
            continue
        right = report(*measure(name, options, left), results) and right
        write(options.json, results)
    if not right:
        print("a contender failed, or its losses differ by more than rounding")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
