#!/usr/bin/env python3
"""Follows a page in an empty folder, as a reader would. Marks above its blocks, which are comments of HTML, say what they are:
  <!-- file: NAME -->  a file, which is written
  <!-- run -->         commands, which must succeed, each line by itself
  <!-- prints -->      what the last commands print: words must be equal and numbers near; a line "..." stands for any lines
A block of C++ that is a program and has no such mark is built by the tests: the page runs it as ./NAME, the name of the page."""
import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("page", type=pathlib.Path)
parser.add_argument("--programs", type=pathlib.Path, help="the folder with the programs of pages")
parser.add_argument("--prefix", type=pathlib.Path, help="where libcomposer is installed, for pages that run CMake")
parser.add_argument("--bin", type=pathlib.Path, help="the folder with the program composer")
parser.add_argument("--keep", type=pathlib.Path, help="follow the page in this folder, and keep it")
options = parser.parse_args()

NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
TIMES = re.compile(r"[\d.]+ ?(?:k|M)? ?(?:samples|tokens|batches)/s|[\d.:]+ ?(?:s|ms|us|µs|min|h)\b(?: left)?")


def blocks():
    """(kind, its value, text) of each block that has a mark, in the order of the page."""
    for found in re.finditer(r"<!-- (file|run|prints)(?:: (.*?))? -->\n+```\w*\n(.*?)^```", options.page.read_text(), re.S | re.M):
        yield found.groups()


def near(a, b):
    a, b = (float(number.replace(",", "")) for number in (a, b))
    return abs(a - b) <= 0.05 + 0.3 * max(abs(a), abs(b))


def alike(line, shown):
    line, shown = (" ".join(TIMES.sub("TIME", text).replace("TIME left", "TIME").split()) for text in (line, shown))
    if NUMBER.sub("#", line) != NUMBER.sub("#", shown):
        return False
    return all(near(a, b) for a, b in zip(NUMBER.findall(line), NUMBER.findall(shown)))


def differs(said, shown):
    """The first line that the page shows and the program did not print."""
    lines, at, skips = said.splitlines(), 0, False
    for line in shown.splitlines():
        if line.strip() == "...":
            skips = True
            continue
        found = next((i for i in itertools.takewhile(lambda i: skips or i == at, range(at, len(lines))) if alike(lines[i], line)), None)
        if found is None:
            return line
        at, skips = found + 1, False
    return None if skips or at == len(lines) else "(the end of the output)"


def follow(folder):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    if options.bin:
        environment["PATH"] = f"{options.bin}:{environment['PATH']}"
    if options.prefix:
        environment["CMAKE_PREFIX_PATH"] = str(options.prefix)
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
            said = ""
            for command in text.replace("\\\n", "").splitlines():
                steps += 1
                done = subprocess.run(["bash", "-c", command.removeprefix("$ ")], cwd=folder, env=environment, text=True, timeout=500,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                said += done.stdout
                if done.returncode:
                    sys.exit(f"{options.page}: exit status {done.returncode} of: {command}\n{done.stdout[-4000:]}")
        elif (line := differs(said, text)) is not None:
            sys.exit(f"{options.page}: shows the line\n{line}\nand the commands printed:\n{said[-4000:]}")
    if not steps:
        sys.exit(f"{options.page}: has no commands with the mark <!-- run -->")
    print(f"{options.page.name}: {steps} commands, as the page says")


if options.keep:
    options.keep.mkdir(parents=True, exist_ok=True)
    follow(options.keep)
else:
    with tempfile.TemporaryDirectory() as name:
        follow(pathlib.Path(name))
