#!/usr/bin/env python3
"""Cuts the cable between two machines with one rank each, and checks that both ranks end.

cut_cable.py RANKS TRAINEE COMPOSER [--dead-after MS]

RANKS is build/release/bin/dist_ranks, whose ranks have nothing but a World, TRAINEE dist_trainee, whose ranks train and
save, COMPOSER the program `composer`. The machines are network namespaces, joined by a pair of virtual interfaces; that
takes root and `ip` (Debian's package is iproute2). Without them the test is skipped (status 77). Each rank must end within
dead_after + 5 s with status 75 and name the other one. With the cable repaired, the ranks that trained go on from their
newest checkpoint and end with the bits of a run without a failure.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from rank_processes import LOST, Processes, wait_for
from trainer_faults import checkpoints

SKIPPED = 77
MARGIN = 5.0  # seconds beyond dead_after
PORT = 29511
PATIENT = 120.0  # seconds for what has no limit of its own, on a busy machine


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Machines:
    """Two namespaces, composerA<pid> with 10.213.0.1 and composerB<pid> with 10.213.0.2."""

    def __init__(self):
        self.names = [f"composer{side}{os.getpid()}" for side in "AB"]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", "cable0", "netns", self.names[0], "type", "veth", "peer", "name", "cable1", "netns", self.names[1])
            for side, name in enumerate(self.names):
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "addr", "add", f"10.213.0.{side + 1}/24", "dev", f"cable{side}")
                ip("-n", name, "link", "set", f"cable{side}", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def start(self, *command, folder=None):
        def start_rank(rank, variables, output):
            return subprocess.Popen(["ip", "netns", "exec", self.names[rank], *command], stdout=output, stderr=output,
                                    env=variables, cwd=folder, start_new_session=True)

        return Processes(2, start_rank, address="10.213.0.1", port=PORT, local=False)

    def cut(self):
        ip("-n", self.names[0], "link", "set", "cable0", "down")

    def repair(self):
        ip("-n", self.names[0], "link", "set", "cable0", "up")


def cut_while(what, ranks, machines, limit):
    """Cuts the cable when rank 0 says so. What is wrong with the ends of the ranks."""
    problems = []
    try:
        if not wait_for(lambda: "FAULT" in ranks.said(0), PATIENT):
            return [f"{what}: the ranks did not begin to train: {ranks.said(0)}"]
        machines.cut()
        cut = time.monotonic()
        ranks.all_end(limit)
        for rank in range(2):
            blamed = re.search(r"rank (\d+)(?:, which serves the store,)? (?:gave|is gone|has not|did not)\b.*", ranks.said(rank))
            if rank not in ranks.ends:
                problems.append(f"{what}: rank {rank} hangs")
            elif ranks.status(rank) != LOST or not blamed or int(blamed.group(1)) != 1 - rank:
                problems.append(f"{what}: rank {rank} ended with status {ranks.status(rank)}: {ranks.said(rank)}")
            elif not re.search(r"epoch \d+, batch \d+", blamed.group(0)):
                problems.append(f"{what}: rank {rank} does not say where rank {1 - rank} was: {blamed.group(0)}")
            else:
                print(f"{what}: rank {rank} ended {ranks.ends[rank] - cut:.1f} s after the cut: {blamed.group(0)[:120]}")
        return problems
    finally:
        ranks.kill()
        ranks.close()
        machines.repair()


def train(options, machines, folder):
    """Trains to the end. What is wrong."""
    found = checkpoints(folder)
    expected = f"goes on from .*{re.escape(found[-1].name)}\n" if found else "begins\n"
    ranks = machines.start(options.trainee, "none", "none", "0", folder=folder)
    ranks.all_end(PATIENT)
    ranks.kill()
    problems = [f"rank {rank} ended with status {ranks.status(rank)}: {ranks.said(rank)}" for rank in range(2)
                if ranks.status(rank) != 0 or not re.search(expected, ranks.said(rank))]
    ranks.close()
    return problems


def cut_trainers(options, machines, limit, folder):
    unbroken = folder / "unbroken"
    unbroken.mkdir()
    problems = train(options, machines, unbroken)
    # Rank 0 sleeps for a second, and both wait for each other; or it computes for a minute, and rank 1 waits.
    for kind, moment in (("sleep", "after_loss"), ("busy", "eval_batch_end")):
        if problems:
            break
        cut = folder / kind
        cut.mkdir()
        ranks = machines.start(options.trainee, kind, moment, "0", str(options.dead_after), folder=cut)
        problems = cut_while(f"trainers at {moment}", ranks, machines, limit)
        problems = problems or train(options, machines, cut)
        if not problems:
            same = subprocess.run([options.composer, "diff", checkpoints(unbroken)[-1], checkpoints(cut)[-1]],
                                  capture_output=True, text=True)
            if same.returncode != 0:
                problems.append(f"the run differs from one without a failure: {same.stdout}{same.stderr}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for program in ("ranks", "trainee", "composer"):
        parser.add_argument(program, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--dead-after", type=int, default=1500, help="milliseconds")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("skipped: a network namespace takes root and the program ip (Debian's package is iproute2)")
        return SKIPPED
    limit = options.dead_after / 1000 + MARGIN
    try:
        with Machines() as machines, tempfile.TemporaryDirectory() as folder:
            # In batch 5, rank 0 computes for a minute and rank 1 waits for it in a collective.
            ranks = machines.start(options.ranks, "compute", "cable", "0", str(options.dead_after), "600000", "20000")
            problems = cut_while("worlds", ranks, machines, limit)
            problems += cut_trainers(options, machines, limit, pathlib.Path(folder))
    except subprocess.CalledProcessError as error:
        print(f"skipped: {' '.join(error.cmd)}: {error.stderr.strip()}")
        return SKIPPED
    print("\n".join(problems) or "all ranks ended, and those that trained went on to the same bits")
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
