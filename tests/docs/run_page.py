#!/usr/bin/env python3
"""Follows a page in an empty folder, as a reader would. Marks above its blocks, which are comments of HTML, say what they are:
  <!-- file: NAME -->  a file, which is written
  <!-- run -->         commands, which must succeed, each line by itself
  <!-- run: until TEXT -->      the same, and the command that prints a line with this beginning is killed there
  <!-- run on a new machine --> commands that install: they are left out here; --installation prints them, for scripts/fresh
  <!-- prints -->      what the last commands print: words and small counts must be equal, and numbers near; a line "..." stands for any lines;
                       /home/me/FOLDER is the folder in which the page is followed
  <!-- prints: about --> the same, but numbers that are no counts may be any: they depend on the processor or on the load
With --prefix, HOME is an empty folder, but for ~/composer, which is the prefix. A block of C++ that is a program and has no such mark is built
by the tests: the page runs it as ./NAME, the name of the page."""
import argparse
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("page", type=pathlib.Path)
parser.add_argument("--programs", type=pathlib.Path, help="the folder with the programs of pages")
parser.add_argument("--prefix", type=pathlib.Path, help="where libcomposer is installed, for pages that run CMake")
parser.add_argument("--bin", type=pathlib.Path, help="the folder with the program composer")
parser.add_argument("--installation", action="store_true", help="print the commands for a new machine, and do nothing")
parser.add_argument("--keep", type=pathlib.Path, help="follow the page in this folder, and keep it")
options = parser.parse_args()

NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
COUNTS = re.compile(r"\b\d+/\d+\b|\b\d+ (?:batches|files)\b")
TIMES = re.compile(r"[\d.]+ ?(?:k|M)? ?(?:samples|tokens|batches)/s|[\d.:]+ ?(?:s|ms|us|µs|min|h)\b(?: left)?")


def blocks():
    """(kind, its value, text) of each block that has a mark, in the order of the page."""
    for found in re.finditer(r"<!-- (file|run|prints)(?:: (.*?))? -->\n+```\w*\n(.*?)^```", options.page.read_text(), re.S | re.M):
        yield found.groups()


def near(a, b):
    x, y = (float(number.replace(",", "")) for number in (a, b))
    return abs(x - y) <= 0.02 + 0.15 * max(abs(x), abs(y))


def alike(line, shown, about=False):
    line, shown = (" ".join(TIMES.sub("TIME", text).replace("TIME left", "TIME").split()) for text in (line, shown))
    if NUMBER.sub("#", line) != NUMBER.sub("#", shown) or COUNTS.findall(line) != COUNTS.findall(shown):
        return False
    return about or all(near(a, b) for a, b in zip(NUMBER.findall(line), NUMBER.findall(shown)))


def differs(said, shown, folder, about):
    """The first line that the page shows and the program did not print."""
    said = re.sub(rf"{re.escape(str(folder))}\b", "/home/me", said)
    shown = re.sub(r"/home/me/\w+", "/home/me", shown)
    lines, at, skips = said.splitlines(), 0, False
    for line in shown.splitlines():
        if line.strip() == "...":
            skips = True
            continue
        found = next((i for i in itertools.takewhile(lambda i: skips or i == at, range(at, len(lines))) if alike(lines[i], line, about)), None)
        if found is None:
            return line
        at, skips = found + 1, False
    return None if skips or at == len(lines) else "(the end of the output)"


def run(command, folder, environment, until):
    """What it prints. With `until`, it is killed when a line begins so."""
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    limit = threading.Timer(500, os.killpg, (process.pid, signal.SIGKILL))
    limit.daemon = True
    limit.start()
    said, killed = "", False
    for line in process.stdout:
        said += line
        if until and " ".join(line.split()).startswith(until):
            os.killpg(process.pid, signal.SIGKILL)
            killed = True
    limit.cancel()
    if process.wait() and not killed:
        sys.exit(f"{options.page}: exit status {process.returncode} of: {command}\n{said[-4000:]}")
    return said, killed


def follow(folder, home):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    if options.bin:
        environment["PATH"] = f"{options.bin}:{environment['PATH']}"
    if options.prefix:
        environment |= {"CMAKE_PREFIX_PATH": str(options.prefix), "HOME": str(home)}
        (home / "composer").symlink_to(options.prefix)
    if not shutil.which("make"):  # CMake's own choice
        environment["CMAKE_GENERATOR"] = "Ninja"
    if options.programs:
        text = options.page.read_text()
        for name in {options.page.stem, *re.findall(r"<!-- file: (\w+)\.cpp -->", text)}:
            if (options.programs / name).exists():
                shutil.copy2(options.programs / name, folder / name)
    said, steps = "", 0
    for kind, value, text in blocks():
        if kind == "file":
            path = folder / value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif kind == "run":
            said, killed = "", False
            until = (value or "").removeprefix("until ")
            for command in text.replace("\\\n", "").splitlines():
                steps += 1
                printed, ended = run(command.removeprefix("$ "), folder, environment, until)
                said, killed = said + printed, killed or ended
            if until and not killed:
                sys.exit(f"{options.page}: no command printed a line that begins with {until}:\n{said[-4000:]}")
        elif (line := differs(said, text, folder, value == "about")) is not None:
            sys.exit(f"{options.page}: shows the line\n{line}\nand the commands printed:\n{said[-4000:]}")
    if not steps:
        sys.exit(f"{options.page}: has no commands with the mark <!-- run -->")
    print(f"{options.page.name}: {steps} commands, as the page says")


if options.installation:
    for found in re.finditer(r"<!-- run on a new machine -->\n+```\w*\n(.*?)^```", options.page.read_text(), re.S | re.M):
        print(found[1].replace("\\\n", ""), end="")
else:
    with tempfile.TemporaryDirectory() as new, tempfile.TemporaryDirectory() as home:
        folder = options.keep or pathlib.Path(new)
        folder.mkdir(parents=True, exist_ok=True)
        follow(folder.resolve(), pathlib.Path(home))
