"""Measures what training in several processes costs, and writes the tables of docs/internals/scaling.md; benchmarks/scale
builds the program and starts this.

A side is as many processes as there are ranks, which train one workload in several variants and sleep unless they are
asked for a segment: so many more steps of one variant. In a round each variant is asked once, in an order that rotates;
what is compared are times of the same round. ../ranked.cpp and ../peers/ddp.py say what is exchanged.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import drive  # noqa: E402
import facts  # noqa: E402
import report  # noqa: E402
import tables  # noqa: E402
from drive import Failed, say, words_of  # noqa: E402

BATCHES = {"mlp": 32, "cnn": 16, "resnet20": 32, "gpt": 4, "wide": 64}  # of a rank, as in ranked/workloads.cpp
FEW_STEPS = {"mlp": 50}  # of the segment after which checksums are compared; others: 4
EXACT, ROUNDED = 1e-4, 2e-2  # relative differences of checksums


def tolerance(workload, variant):
    """bf16 rounds gradients, and the batch norms of a virtual shard see its samples only."""
    is_rounded = variant.endswith("in_bf16") or (workload, variant) == ("resnet20", "trainer_shards")
    return ROUNDED if is_rounded else EXACT


ONE = (["local", "overlapped", "trainer", "trainer_world", "trainer_shards"], ["py_local", "py_overlapped"])
SEVERAL = (["local", "overlapped", "after", "in_bf16", "zero_1", "zero_2", "trainer", "trainer_shards"],
           ["py_local", "py_overlapped", "py_after", "py_in_bf16", "py_zero_1"])
PAGES = {"internals/scaling.md": tables.scaling_page}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Side:
    """The ranks of one program. ask() gives the answers of all, by rank."""

    def __init__(self, command, ranks):
        self.processes, self.errors = [], []
        port = free_port()
        for rank in range(ranks):
            place = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks, MASTER_PORT=port)
            environment = dict(os.environ, MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                               TORCH_CPP_LOG_LEVEL="ERROR", **{name: str(value) for name, value in place.items()})
            self.errors.append(tempfile.TemporaryFile())
            self.processes.append(subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                                   stdout=subprocess.PIPE, stderr=self.errors[-1]))

    def answers(self):
        return [self.answer(rank) for rank in range(len(self.processes))]

    def answer(self, rank):
        while line := self.processes[rank].stdout.readline():
            if line.startswith("{"):  # Gloo prints that it is connected
                return json.loads(line)
        said = []
        self.close()
        for errors in self.errors:
            errors.seek(0)
            said.append(errors.read().decode(errors="replace").strip()[-400:])
        raise Failed("\n".join(text for text in said if text) or "a rank has ended")

    def ask(self, line):
        for process in self.processes:
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # answers() says what happened
        return self.answers()

    def close(self):
        for process in self.processes:
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def commands(options, workload):
    """Of our side, and of Python's if it is measured."""
    yield [str(options.program), workload]
    if options.python:
        peer = str(ROOT / "benchmarks/peers/ddp.py")
        yield [options.python, peer, workload, str(BATCHES[workload]), str(options.data)]


def segment(side, variant, steps, table):
    busy, begin = drive.busy_seconds(), time.monotonic()
    answers = side.ask(f"run {variant} {steps}")
    mine = sum(answer["cpu_s"] for answer in answers)
    table["others"].append(max(0, (drive.busy_seconds() - busy - mine) / (time.monotonic() - begin)))
    of = table["variants"][variant]
    of["wall_us"].append(1e6 * max(answer["wall_s"] for answer in answers) / steps)
    of["cpu_us"].append(1e6 * mine / len(answers) / steps)


def check_equal_work(table):
    """All variants have trained the same steps: the weights of the ranks are equal, and those of the variants."""
    of = table["variants"]
    for variant, entry in of.items():
        is_alone = variant in ("local", "py_local")
        expected = of["local" if is_alone else "overlapped"]["checksum"]
        allowed = tolerance(table["workload"], variant)
        for rank, checksum in enumerate(entry["checksums"]):
            wanted = of["local"]["checksums"][rank] if is_alone else expected
            if abs(checksum - wanted) > allowed * wanted:
                raise SystemExit(f"{table['workload']}, {table['ranks']} ranks: {variant} has trained other weights on "
                                 f"rank {rank}: checksum {checksum}, expected {wanted}")
        if not is_alone and len(set(entry["checksums"])) > 1:
            raise SystemExit(f"{table['workload']}: {variant}: ranks have different weights: {entry['checksums']}")


def measure(options, workload, ranks, until):
    """One workload on so many ranks. Begins no round after `until`, but makes three at least."""
    begin = time.monotonic()
    table = dict(workload=workload, ranks=ranks, variants={}, others=[])
    sides, side_of = [Side(command, ranks) for command in commands(options, workload)], {}
    for side, variants in zip(sides, ONE if ranks == 1 else SEVERAL):
        versions = side.answers()
        table.setdefault("libtorch", []).append(versions[0]["libtorch"])
        side_of.update({variant: side for variant in variants})
    few = FEW_STEPS.get(workload, 4)
    for variant, side in side_of.items():
        checksums = [answer["checksum"] for answer in side.ask(f"run {variant} {few}")]
        table["variants"][variant] = dict(checksum=checksums[0], checksums=checksums, wall_us=[], cpu_us=[])
    check_equal_work(table)
    warm = side_of["overlapped"].ask(f"run overlapped {few}")[0]
    steps = table["steps"] = max(2, round(options.seconds * warm["steps"] / warm["wall_s"]))
    all_phases = []
    say(f"{workload}, {ranks} ranks: ready after {time.monotonic() - begin:.0f} s, {steps} steps a segment")
    names = list(side_of)
    for number in range(options.rounds):
        if number >= 3 and time.monotonic() > until:
            say(f"  no time for more than {number} rounds")
            break
        turn = number % len(names)
        for variant in names[turn:] + names[:turn]:
            segment(side_of[variant], variant, steps, table)
        all_phases.append(sides[0].ask(f"phases {max(3, steps)}")[0])
    all_phases.sort(key=lambda phases: phases["forward_s"] + phases["backward_s"] + phases["update_s"])
    table["phases"] = all_phases[len(all_phases) // 2]
    for side in sides:
        side.close()
    say(f"  done after {time.monotonic() - begin:.0f} s")
    return table


def sweep(options, ranks):
    side = Side([str(options.program), "mlp"], ranks)
    side.answers()
    result = side.ask("sweep quick" if options.quick else "sweep")[0]
    side.close()
    return result


def parse():
    parser = argparse.ArgumentParser(prog="benchmarks/scale", description="Measures training in several processes.")
    add = parser.add_argument
    add("--workloads", type=words_of, default=list(BATCHES), help="some of " + ",".join(BATCHES))
    add("--four", type=words_of, default=["cnn", "wide"], help="workloads that are trained on 4 ranks as well")
    add("--rounds", type=int, default=9)
    add("--seconds", type=float, default=0.25, help="that a segment of DataParallel takes")
    add("--minutes", type=float, default=6, help="after which no round begins")
    add("--python", help="one that has torch: measures its DistributedDataParallel as well")
    add("--quick", action="store_true", help="three short rounds, into build/benchmarks/quick/")
    add("--preliminary", action="store_true", help="the tables say that the machine was shared")
    add("--again", action="store_true", help="measures nothing: writes what the last run found once more")
    add("--out", type=pathlib.Path, help="a folder; in its pages, as in those of docs, what is between the markers "
        "is replaced; default: docs")
    add("--program", type=pathlib.Path, default=ROOT / "build/release/bin/ranked")
    add("--data", type=pathlib.Path, default=ROOT / "build/benchmarks/ranked", help="for contenders in Python")
    options = parser.parse_args()
    for word in options.workloads + options.four:
        if word not in BATCHES:
            parser.error(f"there is no {word}; there are {', '.join(BATCHES)}")
    if options.quick:
        options.rounds, options.seconds = 3, 0.05
    options.out = options.out or ROOT / ("build/benchmarks/quick" if options.quick else "docs")
    return options


def measure_all(options):
    if options.python:
        for workload in options.workloads:
            subprocess.run([options.program, "--files", options.data, workload], check=True)
    begin = time.monotonic()
    jobs = [(workload, ranks) for ranks in (1, 2, 4) for workload in options.workloads
            if ranks < 4 or workload in options.four]
    counts = sorted({ranks for _, ranks in jobs} - {1})
    sweeps = {str(ranks): sweep(options, ranks) for ranks in counts}
    found = []
    for number, (workload, ranks) in enumerate(jobs):
        now = time.monotonic()
        left = max(0, begin + 60 * options.minutes - now)
        weight = sum(ranks for _, ranks in jobs[number:])
        found.append(measure(options, workload, ranks, now + left * ranks / weight))
    say(f"measured in {(time.monotonic() - begin) / 60:.1f} minutes")
    versions = found[0]["libtorch"]
    return dict(date=datetime.date.today().isoformat(), preliminary=options.preliminary, machine=facts.of_machine(),
                software=facts.of_software(ROOT, options.program), libtorch=versions[0],
                pytorch=versions[1] if len(versions) > 1 else None, sweeps=sweeps, tables=found)


def main():
    options = parse()
    kept = ROOT / "build/benchmarks" / ("scaling_quick.json" if options.quick else "scaling.json")
    kept.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        results = json.loads(kept.read_text())
    else:
        results = measure_all(options)
        kept.write_text(json.dumps(results, indent=1))
    for name, page in PAGES.items():
        report.write(options.out / name, page(results), command="benchmarks/scale")
    say(f"written: {', '.join(PAGES)} in {options.out}; the figures themselves are in {kept.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
