#!/usr/bin/env python3
"""The variables that `python -m torch.distributed.run` and `composer launch` set for the programs that they start: those
that composer/dist/environment.h names, with the values that it says.

launchers.py COMPOSER     COMPOSER is the program `composer`. Ends with 77 (skipped) where Python has no torch.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DUMP = 'import json, os, sys; json.dump(dict(os.environ), open(f"{sys.argv[1]}/{os.environ[\'RANK\']}", "w"))'
FAIL_FIRST = DUMP + '; sys.exit(5 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)'
COMMON = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_RESTART_COUNT"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "2"]
# With Python 3.11, these two options of torch before 2.0 have no valid default.
OLD = ["--redirects", "0:1,1:1", "--tee", "0:1,1:1"]
wrong = []


def environments(command, program=DUMP):
    """Of the two ranks that the command starts."""
    own = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", *COMMON)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*command, sys.executable, "-c", program, folder], env=own, capture_output=True, text=True,
                              timeout=120)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return [json.loads((pathlib.Path(folder) / str(rank)).read_text()) for rank in range(2)]


def expect(what, found, expected):
    if found != expected:
        wrong.append(f"{what} is {found!r}, not {expected!r}")


def check(launcher, ranks, restarts="0", **more):
    for rank, variables in enumerate(ranks):
        expected = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0",
                        TORCHELASTIC_RESTART_COUNT=restarts, **more)
        for name, value in expected.items():
            expect(f"{launcher}, rank {rank}: {name}", variables.get(name), value)
        for name in COMMON:
            if not variables.get(name):
                wrong.append(f"{launcher}, rank {rank}: {name} is not set")
        if not 0 < int(variables.get("MASTER_PORT", 0)) < 65536:
            wrong.append(f"{launcher}, rank {rank}: MASTER_PORT is {variables.get('MASTER_PORT')!r}")
    expect(f"{launcher}: MASTER_PORT of rank 1", ranks[1].get("MASTER_PORT"), ranks[0].get("MASTER_PORT"))


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


launch = [sys.argv[1], "launch", "-n", "2"]
check("composer launch", environments([*launch, "--"]), NODE_RANK="0", COMPOSER_LAUNCHER="composer launch",
      TORCHELASTIC_USE_AGENT_STORE=None)
check("composer launch", environments([*launch, "--max-restarts", "1", "--"], FAIL_FIRST), restarts="1")
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch.distributed.run") is None:
    print("SKIPPED, so nothing is compared with torch.distributed.run: this Python has no torch")
    sys.exit(1 if wrong else 77)
import torch.version
if int(torch.version.__version__.split(".")[0]) < 2:
    TORCHRUN += OLD
# The agent serves the store, so rank 0 must not.
with_agent = dict(COMPOSER_LAUNCHER=None, COMPOSER_MASTER_FD=None, TORCHELASTIC_USE_AGENT_STORE="True")
port = str(free_port())
check("torch.distributed.run", environments([*TORCHRUN, "--master_port", port]), MASTER_PORT=port, **with_agent)
check("torch.distributed.run --standalone", environments([*TORCHRUN, "--standalone"]), COMPOSER_LAUNCHER=None)
check("torch.distributed.run --max_restarts",
      environments([*TORCHRUN, "--max_restarts", "1", "--master_port", str(free_port())], FAIL_FIRST), restarts="1")

if wrong:
    sys.exit("launchers: " + "\nlaunchers: ".join(wrong))
print("The variables of torch.distributed.run and of composer launch are those that programs read.")
