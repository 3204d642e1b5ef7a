#!/usr/bin/env python3
"""Cuts the cable between two machines with one rank each, and checks that both ranks end.

cut_cable.py PROGRAM [--dead-after MS]

The machines are network namespaces, joined by a pair of virtual interfaces; that takes root and `ip` (Debian's package is
iproute2). Without them the test is skipped (status 77). Each rank must end within dead_after + 5 s with status 75 and name
the other one.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
MARGIN = 5.0  # seconds beyond dead_after
PORT = 29511


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

    def start(self, rank, command, output):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                           NODE_RANK=str(rank), MASTER_ADDR="10.213.0.1", MASTER_PORT=str(PORT), OMP_NUM_THREADS="1",
                           TORCH_CPP_LOG_LEVEL="ERROR")
        return subprocess.Popen(["ip", "netns", "exec", self.names[rank], *command], stdout=output, stderr=output,
                                env=environment)

    def cut(self):
        ip("-n", self.names[0], "link", "set", "cable0", "down")


def said(output):
    return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def run(options, machines):
    # In batch 5, rank 0 computes for a minute and rank 1 waits for it in a collective.
    command = [options.program, "compute", "cable", "0", str(options.dead_after), "600000", "20000"]
    outputs = [tempfile.TemporaryFile() for _ in range(2)]
    processes = [machines.start(rank, command, outputs[rank]) for rank in range(2)]
    try:
        if not wait_for(lambda: "FAULT" in said(outputs[0]), 60):
            return ["the ranks did not begin to train"]
        machines.cut()
        cut, ends = time.monotonic(), {}

        def all_ended():
            for rank, process in enumerate(processes):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = time.monotonic() - cut
            return len(ends) == 2

        wait_for(all_ended, options.dead_after / 1000 + MARGIN)
        problems = []
        for rank, process in enumerate(processes):
            blamed = re.search(r"libcomposer: rank \d+(?:: | is ended[^:]*: )rank (\d+)", said(outputs[rank]))
            if rank not in ends:
                problems.append(f"rank {rank} hangs")
            elif process.returncode != 75 or not blamed or blamed.group(1) != str(1 - rank):
                problems.append(f"rank {rank} ended with status {process.returncode} and does not name rank {1 - rank}")
            else:
                print(f"rank {rank} ended {ends[rank]:.1f} s after the cut: {blamed.string[blamed.start():blamed.end() + 60]}")
        return problems
    finally:
        for rank, process in enumerate(processes):
            if process.poll() is None:
                process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--dead-after", type=int, default=1500, help="milliseconds")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("skipped: a network namespace takes root and the program ip (Debian's package is iproute2)")
        return SKIPPED
    try:
        with Machines() as machines:
            problems = run(options, machines)
    except subprocess.CalledProcessError as error:
        print(f"skipped: {' '.join(error.cmd)}: {error.stderr.strip()}")
        return SKIPPED
    print("\n".join(problems) or "both ranks ended")
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
