#!/usr/bin/env python3
"""One program with a trainer under each launcher: `composer launch`, `python -m torch.distributed.run` and the variables of
srun. Two ranks must end with the same bits under all of them, also if a rank is killed and the launcher starts the ranks
again.

launched_trainers.py TRAINEE COMPOSER     TRAINEE is the program dist_trainee, COMPOSER the program `composer`. Ends with 77
(skipped) where Python has no torch >= 2.0; the other launchers are tested all the same.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "dist"))
from rank_processes import free_port
from trainer_faults import checkpoints

trainee, composer = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
srun = str(pathlib.Path(__file__).resolve().parent.parent / "dist" / "srun.sh")
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "NODE_RANK")
wrong = []


def torchrun(*options):
    return [sys.executable, "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "2", "--master_port",
            str(free_port()), *options]


def finds_torchrun():
    """Torch before 2.0 has another protocol of the store, which its agent serves."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch.distributed.run") is None:
        return False
    import torch.version
    return int(torch.version.__version__.split(".")[0]) >= 2


def train(name, launcher, fault=("none", "none", "0"), code=0):
    """The last checkpoint of the run, and what was printed."""
    folder = pathlib.Path(scratch) / name
    folder.mkdir()
    own = {variable: value for variable, value in os.environ.items() if variable not in LAUNCHERS}
    done = subprocess.run([*launcher, trainee, *fault, "1500"], env=dict(own, OMP_NUM_THREADS="1"), cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode != code:
        sys.exit(f"launched_trainers: {name} ended with {done.returncode}:\n{done.stdout}")
    return checkpoints(folder)[-1], done.stdout


def compare(name, launcher, fault=("none", "none", "0")):
    last, printed = train(name, launcher, fault)
    if fault[0] != "none" and ("goes on from" not in printed or "FAULT" not in printed):
        wrong.append(f"{name}: no rank was killed, or the ranks did not go on from a checkpoint:\n{printed}")
    same = subprocess.run([composer, "diff", "--ignore", "hyperparameters/num_*", str(reference), str(last)],
                          capture_output=True, text=True)
    if same.returncode != 0:
        wrong.append(f"{name}: the run differs from that under composer launch: {same.stdout}{same.stderr}")
    else:
        print(f"{name}: equal")


with tempfile.TemporaryDirectory() as scratch:
    launch = [composer, "launch", "-n", "2", "--grace", "5"]
    killed = ("kill", "batch_end", "1")
    reference, _ = train("composer launch", [*launch, "--"])
    compare("composer launch, a rank killed", [*launch, "--max-restarts", "1", "--"], killed)
    compare("composer launch, a rank stopped", [*launch, "--max-restarts", "1", "--"], ("stop", "after_backward", "0"))
    compare("srun", [srun, "-n", "2"])
    compare("srun on two nodes", [srun, "-N", "2", "-n", "2"])
    has_torchrun = finds_torchrun()
    if has_torchrun:
        compare("torchrun", torchrun())
        compare("torchrun --standalone", torchrun("--standalone"))
        compare("torchrun, a rank killed", torchrun("--max_restarts", "1"), killed)
        compare("torchrun, a rank failed", torchrun("--max_restarts", "1"), ("throw", "eval_start", "0"))

if wrong:
    sys.exit("launched_trainers: " + "\nlaunched_trainers: ".join(wrong))
if not has_torchrun:
    print("SKIPPED, so nothing was trained under torch.distributed.run: this Python has no torch >= 2.0")
    sys.exit(77)
