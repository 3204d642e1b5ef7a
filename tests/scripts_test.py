#!/usr/bin/env python3
"""What the scripts that take arguments do with wrong ones: they say so, fail, and change nothing."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = [path for path in sorted((ROOT / "scripts").glob("*.py")) if path.name != "declarations.py"]
WRONG = [[path, "--chek"] for path in PROGRAMS] + [
    [ROOT / "scripts/exports.py", "no-such-folder"],
    [ROOT / "scripts/syntax.py", "units", "no-such-folder"],
    [ROOT / "scripts/compare.py", "no-such-folder", "another", "bench_loop"],
    [ROOT / "scripts/fuzz", "json", "-5"],
    [ROOT / "scripts/fuzz", "json", "no-such-file"],
]


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def main():
    wrong = []
    events = (ROOT / "docs/reference/events.md").stat().st_mtime_ns
    for path in PROGRAMS:
        if not os.access(path, os.X_OK):
            wrong.append(f"{path.name} cannot be run by its name")
        told = run([sys.executable, path, "--help"])
        if told.returncode != 0 or "usage" not in told.stdout:
            wrong.append(f"{path.name} --help does not say how it is used")
    for command in WRONG:
        done = run([sys.executable, *command] if command[0].suffix == ".py" else command)
        if done.returncode == 0 or not done.stderr or "Traceback" in done.stderr or "compiling" in done.stderr:
            wrong.append(f"{' '.join(map(str, command))}: {done.returncode}, {done.stderr[-200:]}")
    if (ROOT / "docs/reference/events.md").stat().st_mtime_ns != events:
        wrong.append("docs/reference/events.md was written")
    print("\n".join(wrong) or f"scripts: {len(PROGRAMS)} say how they are used, {len(WRONG)} wrong calls are refused")
    sys.exit(bool(wrong))


main()
