#!/usr/bin/env python3
"""Lets one of several ranks fail, and checks how the others end.

faults.py PROGRAM [--all] [--jobs N] [--dead-after MS] [KIND:MOMENT:VICTIM:RANKS ...]

PROGRAM is build/release/bin/dist_ranks, whose ranks have nothing but a World; trainer_faults.py does the same with trainers.
Without --all and without cases, a selection runs that takes half a minute. Each surviving rank must end within dead_after +
5 s after the failure, with status 75, and name the rank that failed. No process, open port or shared memory may remain.
Before the ranks have found each other, only a timeout can tell; the status is 1 then.
"""
import argparse
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rank_processes import FAILED, LOST, Processes, on_this_machine

KINDS = ["kill", "stop", "exit", "throw"]
MOMENTS = ["join", "mesh", "compute", "busy", "allreduce", "barrier", "shutdown"]
SELECTION = [
    "none:none:0:2", "none:none:0:4", "kill:compute:1:2", "kill:allreduce:0:2", "stop:barrier:1:2", "stop:compute:0:4",
    "exit:allreduce:3:4", "throw:compute:1:4", "throw:barrier:0:2", "kill:mesh:1:2", "kill:busy:1:2", "exit:shutdown:1:2",
    "kill:join:1:2", "leave:compute:1:2", "misfit:allreduce:0:2", "misfit:allreduce:1:2", "late:broadcast:2:3",
    "late:broadcast:1:3", "alone:broadcast:0:2", "alone:broadcast:1:2",
]
MARGIN = 5.0  # seconds beyond dead_after
STORE_TIMEOUT = {"join": 4.0}  # seconds for which a rank waits for others to join
PATIENT = 60.0  # the same, at other moments: a busy machine may start a process late


def table():
    cases = ["none:none:0:2", "none:none:0:4"]
    for ranks in (2, 4):
        for victim in (0, ranks - 1):
            for moment in MOMENTS:
                for kind in KINDS:
                    if kind != "throw" or moment not in ("join", "mesh"):
                        cases.append(f"{kind}:{moment}:{victim}:{ranks}")
            cases += [f"leave:{moment}:{victim}:{ranks}" for moment in ("compute", "busy")]
            cases.append(f"misfit:allreduce:{victim}:{ranks}")
            cases.append(f"alone:broadcast:{victim}:{ranks}")
    return cases + [f"late:broadcast:{victim}:{ranks}" for ranks in (3, 4) for victim in range(ranks)]


class Ranks(Processes):
    """The processes of a case."""

    def __init__(self, case, options):
        self.kind, self.moment, victim, size = case.split(":")
        self.victim = int(victim)
        command = [options.program, self.kind, self.moment, victim, str(options.dead_after), "600000",
                   str(int(1000 * STORE_TIMEOUT.get(self.moment, PATIENT)))]
        super().__init__(int(size), on_this_machine(command))

    def survivors(self):
        return [rank for rank in range(self.size) if self.kind in ("none", "misfit", "late", "alone") or rank != self.victim]

    def wait(self, limit):
        """Until all that survive have ended, or for `limit` seconds after the failure. The time of the failure."""
        began, failed = time.monotonic(), None
        limit += STORE_TIMEOUT.get(self.moment, 0) + (4 if self.kind in ("late", "alone") else 0)
        while len([rank for rank in self.survivors() if rank in self.ends]) < len(self.survivors()):
            self.note_ends()
            now = time.monotonic()
            if failed is None and "FAULT" in self.said(self.victim):
                failed = now
                self.look()
            if now > (began + 90 if failed is None else failed + limit):
                break
            time.sleep(0.01)
        return failed or began


def problems_of_misfit(ranks, failed, limit):
    """No rank is to blame, so each ends, and whoever notices says what is wrong."""
    ends = {ranks.processes[rank].returncode for rank in ranks.survivors()}
    if FAILED not in ends or not ends <= {FAILED, LOST}:
        yield f"the ranks ended with {ends}"
    for rank in ranks.survivors():
        if rank not in ranks.ends or ranks.ends[rank] - failed > limit:
            yield f"rank {rank} hangs"
        if "the ranks called different collectives" not in ranks.said(rank):
            yield f"rank {rank} does not say why"


def problems_of(ranks, failed, limit):
    if ranks.kind == "misfit":
        yield from problems_of_misfit(ranks, failed, limit)
        return
    for rank in ranks.survivors():
        text, status = ranks.said(rank), ranks.processes[rank].returncode
        if rank not in ranks.ends:
            yield f"rank {rank} hangs"
            continue
        if ranks.kind in ("none", "late"):
            if status != 0 or "libcomposer" in text:
                yield f"rank {rank} ended with {status}"
            continue
        if ranks.ends[rank] - failed > limit + STORE_TIMEOUT.get(ranks.moment, 0):
            yield f"rank {rank} ended after {ranks.ends[rank] - failed:.1f} s"
        before = ranks.moment == "join"
        if status != (FAILED if before else LOST):
            yield f"rank {rank} ended with status {status}"
        blamed = re.search(r"libcomposer: (?:rank \d+(?:: | is ended[^:]*: ))?(.*)", text)
        named = re.findall(r"rank (\d+)", blamed.group(1)) if blamed else []
        if before:
            right = re.search(rf"did not arrive: {ranks.victim}\b", text) or (ranks.victim == 0 and "did not reach rank 0" in text)
        else:
            right = named and named[0] == str(ranks.victim)
        if not right:
            yield f"rank {rank} does not name rank {ranks.victim}"
        if ranks.kind == "throw" and "a bug of one rank" not in text:
            yield f"rank {rank} does not say why"
        if ranks.kind != "throw" and ranks.moment in ("compute", "busy", "allreduce", "barrier") and "batch 5" not in text:
            yield f"rank {rank} does not say where rank {ranks.victim} was"
    if ranks.kind == "throw" and ranks.processes[ranks.victim].returncode != FAILED:
        yield f"the rank that failed ended with {ranks.processes[ranks.victim].returncode}"


def run(case, options):
    limit = options.dead_after / 1000 + MARGIN
    ranks = Ranks(case, options)
    failed = ranks.wait(limit + 1)
    last = max(ranks.ends.values(), default=failed) - failed
    if ranks.kind == "throw":  # it ends by itself
        ranks.processes[ranks.victim].wait(10)
    left = [rank for rank in ranks.kill() if rank != ranks.victim]
    problems = list(problems_of(ranks, failed, limit))
    if left:
        problems.append(f"processes of ranks {left} were left")
    problems += ranks.leftovers()
    survivor = ranks.survivors()[0]
    said = [line for line in ranks.said(survivor).splitlines() if line.startswith("libcomposer")]
    verdict = "; ".join(problems) if problems else "ok"
    line = f"{case:24s} {last:6.2f} s  {verdict}"
    if options.verbose or problems:
        line += "".join(f"\n    [{rank}] {text}" for rank in range(ranks.size) for text in ranks.said(rank).splitlines()[:6])
    elif said:
        line += f"  | {said[0][:150]}"
    ranks.close()
    return line, bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--all", action="store_true", help="the whole table")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--dead-after", type=int, help="milliseconds; 5000 with --all, else 1500")
    parser.add_argument("--verbose", action="store_true", help="show what every rank prints")
    options = parser.parse_args()
    options.dead_after = options.dead_after or (5000 if options.all else 1500)
    cases = options.cases or (table() if options.all else SELECTION)
    failures = 0
    with ThreadPoolExecutor(options.jobs) as executor:
        for line, failed in executor.map(lambda case: run(case, options), cases):
            print(line, flush=True)
            failures += failed
    print(f"{len(cases)} cases, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
