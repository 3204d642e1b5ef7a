#!/usr/bin/env python3
"""Kills one rank, any, of a training program whose ranks divide the optimizer and save checkpoints in parts or whole, at
random moments and many times, and starts it again. In the end the checkpoints must be equal to those of a run that was
never killed, to the bit, and nothing else may be left.

ranks.py COMPOSER TRAINEE [--kills 20] [--seed 1] [--ranks 2] [--epochs 6] [--keep FOLDER]

After each kill, every checkpoint must be whole, and the newest must not be older than before.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def ranks_of(launcher):
    """The processes that it has started."""
    try:
        text = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
    except FileNotFoundError:  # it has ended
        return []
    return [int(pid) for pid in text.split()]


def checkpoints(folder):
    return sorted(path.parent.name for path in folder.glob("ep*/manifest.json"))


def batch_of(name):
    return int(name.rsplit("ba", 1)[1])


class Torture:
    def __init__(self, options):
        self.options, self.wrong = options, []

    def composer(self, *arguments):
        result = subprocess.run([self.options.composer, *map(str, arguments)], capture_output=True, text=True)
        return "" if result.returncode == 0 else (result.stdout + result.stderr).strip()

    def start(self, folder, parts):
        command = [self.options.composer, "launch", "-n", str(self.options.ranks), "--grace", "2", "--",
                   self.options.trainee, "--epochs", str(self.options.epochs), "--zero", "1", "--parts", str(parts)]
        with open(folder / "output", "ab") as output:
            return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output,
                                    env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"))

    def check(self, fact, what):
        if not fact:
            self.wrong.append(what)
            print("WRONG:", what, flush=True)

    def look(self, folder, newest, when):
        """The batch of the newest checkpoint."""
        names = checkpoints(folder / "checkpoints")
        for name in names:
            damage = self.composer("verify", "--quiet", folder / "checkpoints" / name)
            self.check(not damage, f"{when}: {damage}")
        now = max(map(batch_of, names), default=0)
        self.check(now >= newest, f"{when}: the newest checkpoint is of batch {now}, after {newest}")
        return now

    def run_killed(self, number, parts, folder, reference, kills_left, latest):
        """One run, killed until it ends by itself. Returns the number of kills."""
        chance = random.Random(f"{self.options.seed} {number}")
        folder.mkdir()
        kills = newest = 0
        while not self.wrong:
            launcher = self.start(folder, parts)
            try:
                launcher.wait(chance.uniform(0.3 * latest, latest) if kills < kills_left else 240)
                break
            except subprocess.TimeoutExpired:
                ranks = ranks_of(launcher.pid)
                self.check(kills < kills_left, f"{folder}: it did not end within four minutes")
                if ranks:
                    os.kill(chance.choice(ranks), signal.SIGKILL)
                launcher.wait(60)
            kills += 1
            newest = self.look(folder, newest, f"{folder}, kill {kills}")
        if not self.wrong:
            self.check_end(folder, reference, launcher.returncode)
        print(f"  run {number}, {'in parts' if parts else 'whole'}: {kills} kills" +
              (": WRONG" if self.wrong else ": equal"), flush=True)
        if not self.wrong:
            shutil.rmtree(folder)
        return kills

    def check_end(self, folder, reference, code):
        self.check(code == 0, f"{folder}: it ended with {code}")
        self.look(folder, 0, f"{folder}, at its end")
        expected, there = (checkpoints(one / "checkpoints") for one in (reference, folder))
        self.check(there == expected, f"{folder}: there are {there}, and not {expected}")
        left = [path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith(".tmp-")]
        self.check(not left, f"{folder}: {left} is left")
        for name in there if not self.wrong else []:
            difference = self.composer("diff", reference / "checkpoints" / name, folder / "checkpoints" / name,
                                       "--ignore", "saver/*", "--ignore", "*/SpeedMonitor/*")
            self.check(not difference, f"{folder}: {name} is not that of the run that was not killed: {difference}")

    def torture(self, folder):
        references, seconds = {}, 0
        for parts in (1, 0):
            references[parts] = folder / f"unbroken-{parts}"
            references[parts].mkdir()
            start = time.monotonic()
            self.check(self.start(references[parts], parts).wait(240) == 0, f"{references[parts]}: it failed")
            seconds = time.monotonic() - start
            print(f"  the uninterrupted run: {seconds:.1f} s", flush=True)
        kills = number = 0
        while kills < self.options.kills and not self.wrong:
            number += 1
            parts = 0 if number % 3 == 0 else 1
            kills += self.run_killed(number, parts, folder / f"run-{number}", references[parts],
                                     min(3, self.options.kills - kills), max(1.0, 0.8 * seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("composer", type=os.path.abspath)
    parser.add_argument("trainee", type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--keep", help="an empty folder to work in, which stays")
    options = parser.parse_args()
    torture = Torture(options)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="composer-ranks-")).resolve()
    torture.torture(folder)
    if torture.wrong:
        sys.exit(f"{len(torture.wrong)} facts are wrong; the files are in {folder}")
    if not options.keep:
        shutil.rmtree(folder)
    print("nothing was lost, and nothing is left")


if __name__ == "__main__":
    main()
