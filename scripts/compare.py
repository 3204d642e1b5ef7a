#!/usr/bin/env python3
"""Runs the same benchmark programs from two folders in turn and prints, for each label, what the first takes of the
second's time: the median of the rounds' ratios, and their least and greatest. Below 1 the first is quicker."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("here", type=pathlib.Path)
parser.add_argument("there", type=pathlib.Path)
parser.add_argument("programs", nargs="+")
parser.add_argument("--rounds", type=int, default=5)
options = parser.parse_args()
if options.rounds < 1:
    sys.exit(f"compare: --rounds must be 1 or more, got {options.rounds}")


missing = [str(path) for name in options.programs for path in (options.here / name, options.there / name) if not path.is_file()]
if missing:
    sys.exit(f"compare: {', '.join(missing)}: there is no such program; HERE and THERE are folders of programs")


def measure(program):
    """{label: (value, unit)}"""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run([program, "--json", report], stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"compare: {program} failed with {done.returncode}")
        return {label: (row["value"], row["unit"]) for label, row in json.loads(report.read_text()).items()}


print(f"{'':48} {'here':>12} {'there':>12} {'unit':>4} {'ratio':>7} {'least':>7} {'most':>7}")
for program in options.programs:
    rounds = []
    for number in range(options.rounds):
        pair = [options.here / program, options.there / program]
        order = (0, 1) if number % 2 == 0 else (1, 0)  # who goes first changes, so that a drift favours nobody
        result = {at: measure(pair[at]) for at in order}
        rounds.append((result[0], result[1]))
    first_here, first_there = rounds[0]
    for label in first_here:
        if label not in first_there:
            print(f"{program + ' ' + label:48} not in the other revision")
            continue
        here = [one[label][0] for one, _ in rounds]
        there = [other[label][0] for _, other in rounds]
        ratios = [a / b for a, b in zip(here, there)]
        print(f"{program + ' ' + label:48} {statistics.median(here):12.2f} {statistics.median(there):12.2f} "
              f"{first_here[label][1]:>4} {statistics.median(ratios):7.3f} {min(ratios):7.3f} {max(ratios):7.3f}")
