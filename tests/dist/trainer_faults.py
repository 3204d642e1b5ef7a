#!/usr/bin/env python3
"""Lets one of several ranks that train fail, checks how the others end, and starts all of them again.

trainer_faults.py TRAINEE COMPOSER [--all] [--other-victim] [--jobs N] [--dead-after MS] [KIND:MOMENT:VICTIM:RANKS ...]

TRAINEE is build/release/bin/dist_trainee, COMPOSER build/release/bin/composer. Without --all and without cases, a selection
runs that takes less than a minute. --all are 80 cases: four kinds of failure at ten events on one of 2 and of 4 ranks; after
them those in a thread of the data loader, before training and in a callback's close(), and ranks that hang. Rank 0 and the
last rank take turns as the victim; --other-victim exchanges them.

Each surviving rank must end within dead_after + 5 s with status 75 and a message that names the rank that failed, its last
event and batch. No process, open port or shared memory may remain; a stopped rank that is continued ends as well. All
checkpoints must be whole, and the ranks that are started again must go on from the newest one and end with the weights,
optimizer state and metrics of a run without failures, bit by bit with 2 ranks, or 4 and virtual shards.
"""
import argparse
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from rank_processes import FAILED, LOST, Processes, on_this_machine

KINDS = ["kill", "stop", "exit", "throw"]
EVENTS = ["fit_start", "epoch_start", "after_dataloader", "before_forward", "after_loss", "after_backward", "batch_end",
          "eval_start", "eval_batch_end", "epoch_checkpoint"]
OTHERS = ["worker", "init", "close"]
HANGS = ["after_loss", "batch_end", "eval_batch_end"]  # where the others wait at another event
SELECTION = ["kill:after_loss:1:2", "stop:batch_end:0:2", "exit:eval_batch_end:0:4", "throw:after_backward:1:2",
             "kill:epoch_checkpoint:0:2", "throw:worker:1:2", "exit:close:1:2", "throw:close:0:2", "hang:batch_end:0:2"]
MARGIN = 5.0  # seconds beyond dead_after
TIMEOUT = 4.0  # seconds of a collective, where a rank hangs
PATIENT = 120.0  # seconds for what has no limit of its own, on a busy machine
SIZES = (2, 4)


def table(moments, other_victim, kinds=KINDS):
    for i, moment in enumerate(moments):
        for j, kind in enumerate(kinds):
            for k, ranks in enumerate(SIZES):
                victim = 0 if (i + j + k + other_victim) % 2 == 0 else ranks - 1
                yield f"{kind}:{moment}:{victim}:{ranks}"


def checkpoints(folder):
    found = [path.parent for path in folder.glob("checkpoints/*/manifest.json") if not path.parent.is_symlink()]
    return sorted(found, key=lambda path: int(path.name.rsplit("ba", 1)[1]))


class Case:
    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, pathlib.Path(folder)
        self.kind, self.moment, victim, size = name.split(":")
        self.victim, self.size = int(victim), int(size)
        # With more than two ranks only virtual shards keep the order in which a restarted run adds gradients.
        self.shards = 4 if self.size > 2 and self.kind in ("kill", "throw", "shards") else 0
        self.is_exact = self.size == 2 or self.shards > 0
        # An exception in a callback's close() is a warning.
        self.is_harmless = self.kind == "none" or (self.kind, self.moment) == ("throw", "close")
        self.limit = options.dead_after / 1000 + MARGIN + (TIMEOUT if self.kind == "hang" else 0)
        self.problems, self.fault, self.where, self.lasted = [], None, "", 0.0

    def start(self, *arguments):
        command = [self.options.trainee, *map(str, arguments), str(self.options.dead_after)]
        command += [str(int(1000 * (TIMEOUT if arguments[0] == "hang" else 600))), str(self.shards)]
        return Processes(self.size, on_this_machine(command, cwd=self.folder))

    def others(self):
        return [rank for rank in range(self.size) if rank != self.victim]

    def composer(self, *arguments):
        return subprocess.run([self.options.composer, *map(str, arguments)], capture_output=True, text=True)

    def wait(self, ranks):
        """Until all others have ended, or until the time for that is over."""
        until = time.monotonic() + PATIENT
        while time.monotonic() < until and not all(rank in ranks.note_ends() for rank in self.others()):
            told = re.search(r"FAULT at (.*)\n", ranks.said(self.victim)) if self.fault is None else None
            if told:
                self.fault, self.where = time.monotonic(), told.group(1)
                until = self.fault + (PATIENT if self.is_harmless else self.limit + 1)
                ranks.look()
            time.sleep(0.01)
        if self.fault is None:
            self.problems.append("there was no failure")

    def check_survivor(self, ranks, rank):
        text, status = ranks.said(rank), ranks.status(rank)
        if rank not in ranks.ends:
            return self.problems.append(f"rank {rank} hangs")
        lasted = ranks.ends[rank] - (self.fault or ranks.ends[rank])
        self.lasted = max(self.lasted, lasted)
        if self.is_harmless:
            if status != 0:
                self.problems.append(f"rank {rank} ended with status {status}")
            return None
        if lasted > self.limit:
            self.problems.append(f"rank {rank} ended after {lasted:.1f} s")
        if status != LOST:
            self.problems.append(f"rank {rank} ended with status {status}")
        blamed = re.search(r"rank (\d+)(?:, which serves the store,)? (?:gave|failed|is gone|has not|did not|was|hangs)\b(.*)", text,
                           re.DOTALL)
        if not blamed or int(blamed.group(1)) != self.victim:
            return self.problems.append(f"rank {rank} does not name rank {self.victim}")
        place = r"epoch \d+, batch \d+" if self.moment == "worker" else re.escape(self.where)
        if not re.search(place, blamed.group(2)):
            self.problems.append(f"rank {rank} does not say that rank {self.victim} was at {self.where}")
        why = {"throw": "a bug of one rank", "exit": "its program ended with status 1"}.get(self.kind, "")
        if why not in blamed.group(2):
            self.problems.append(f"rank {rank} does not say why rank {self.victim} failed")
        return None

    def check_victim(self, ranks):
        """Its status. One that was stopped notices, when it is continued, that the others have ended."""
        process = ranks.processes[self.victim]
        if self.kind == "stop":
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(self.limit)
        except subprocess.TimeoutExpired:
            return self.problems.append(f"rank {self.victim}, which failed, does not end")
        status = {"kill": -signal.SIGKILL, "stop": LOST, "exit": FAILED, "throw": FAILED, "hang": LOST}.get(self.kind, 0)
        if self.is_harmless:
            status = 0
        if (self.kind, self.moment, process.returncode) == ("stop", "close", 0):
            return None  # the others have told it that their work was done
        if process.returncode != status:
            self.problems.append(f"rank {self.victim}, which failed, ended with {process.returncode}, not {status}")
        if self.kind == "stop" and "was suspended for" not in ranks.said(self.victim):
            self.problems.append(f"rank {self.victim} does not say that it was suspended")
        return None

    def fail(self):
        ranks = self.start(self.kind, self.moment, self.victim)
        try:
            self.wait(ranks)
            for rank in self.others():
                self.check_survivor(ranks, rank)
            self.check_victim(ranks)
        finally:
            left = ranks.kill()
            for rank in left:
                self.problems.append(f"the process of rank {rank} was left")
        self.problems += ranks.leftovers()
        return self.show(ranks)

    def go_on(self, reference):
        """Starts all ranks again, without a failure."""
        found = checkpoints(self.folder)
        whole = self.composer("verify", "--quiet", self.folder / "checkpoints") if found else None
        if whole and whole.returncode != 0:
            self.problems.append(f"a checkpoint is not whole: {whole.stdout}{whole.stderr}")
        ranks = self.start("none", "none", 0)
        if not ranks.all_end(PATIENT):
            self.problems.append("started again, the ranks do not end")
        ranks.kill()
        expected = f"goes on from .*{re.escape(found[-1].name)}\n" if found else "begins\n"
        for rank in range(self.size):
            if ranks.status(rank) != 0 or not re.search(expected, ranks.said(rank)):
                self.problems.append(f"started again, rank {rank} ended with status {ranks.status(rank)}: {ranks.said(rank)}")
        if reference and not self.problems:
            last = checkpoints(self.folder)[-1]
            same = self.composer("diff", reference, last)
            if last.name != reference.name or (self.is_exact and same.returncode != 0):
                self.problems.append(f"the run differs from one without a failure: {same.stdout}{same.stderr}")
        ranks.close()

    def show(self, ranks):
        texts = "".join(f"\n    [{rank}] {line}" for rank in range(ranks.size) for line in ranks.said(rank).splitlines()[:8])
        survivor = ranks.said(self.others()[0])
        ranks.close()
        said = re.search(r"libcomposer: rank .*(?:\n  because: .*)*", survivor)
        return texts, " ".join(said.group(0).split())[:260] if said else ""


def run(name, options, references):
    with tempfile.TemporaryDirectory() as folder:
        case = Case(name, options, folder)
        texts, said = case.fail()
        if not case.problems:
            case.go_on(references[case.size, case.shards])
        line = f"{name:28s} {case.lasted:6.2f} s  " + ("; ".join(case.problems) or "ok")
        if options.verbose or case.problems:
            line += texts
        elif said:
            line += f"  | {said}"
        return line, bool(case.problems), case.lasted


def reference(size, shards, options, folder):
    """The last checkpoint of a run without failures."""
    folder.mkdir()
    case = Case(f"{'shards' if shards else 'none'}:none:0:{size}", options, folder)
    case.go_on(None)
    if case.problems:
        sys.exit("; ".join(case.problems))
    return checkpoints(case.folder)[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainee", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("composer", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--all", action="store_true", help="the whole table")
    parser.add_argument("--other-victim", action="store_true", help="with --all: rank 0 and the last rank exchanged")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--dead-after", type=int, help="milliseconds; 5000 with --all, else 1500")
    parser.add_argument("--verbose", action="store_true", help="show what every rank prints")
    options = parser.parse_intermixed_args()
    options.dead_after = options.dead_after or (5000 if options.all else 1500)
    cases = options.cases or SELECTION
    if options.all:
        cases = [*table(EVENTS, options.other_victim), *table(OTHERS, options.other_victim),
                 *table(HANGS, options.other_victim, ["hang"])]
    failures, longest = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        references = {}
        for size, shards in sorted({(case.size, case.shards) for case in (Case(name, options, folder) for name in cases)}):
            references[size, shards] = reference(size, shards, options, pathlib.Path(folder) / f"{size}-{shards}")
        with ThreadPoolExecutor(options.jobs) as executor:
            for line, failed, lasted in executor.map(lambda case: run(case, options, references), cases):
                print(line, flush=True)
                failures += failed
                longest = max(longest, lasted)
    print(f"{len(cases)} cases, {failures} failed; the last survivor ended {longest:.1f} s after a failure at most")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
