#!/usr/bin/env python3
"""clang reads all sources, a folder at a time, and each public header alone; what it says is an error.

    scripts/syntax.py units BUILD     the units of BUILD/compile_commands.json, which is configured for clang
    scripts/syntax.py headers BUILD [HEADER...]   the headers that are installed, or those of them that are named, each as the
                                      first and only one of a source

A header that leads to torch/nn is read after a precompiled torch/nn/module.h: alone, each takes ten seconds. So a missing
include of that header's own is found in all but these, where only missing includes of ours are.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG = "clang++-19"
OF_OUTPUT = {"-MD", "-fPIC", "-fPIE"}  # a precompiled header must have been made with the same
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.M)


def flags_of(command):
    """The arguments of a compilation by clang without the compiler, what is compiled, and where to."""
    words = shlex.split(command)
    kept, skip = [], False
    for word in words[next(i for i, word in enumerate(words) if word.endswith(CLANG)) + 1:]:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MT", "-MF"):
            skip = word != "-c"
        elif word not in OF_OUTPUT and not word.endswith((".cpp", ".cxx")):
            kept.append(word)
    return kept


def read(arguments):
    """What clang says of it as an error; first after the precompiled header that `arguments` may name, if its flags allow that."""
    said = subprocess.run([CLANG, "-fsyntax-only", *arguments], capture_output=True, text=True)
    if said.returncode and ("precompiled" in said.stderr or "PCH file" in said.stderr) and "-include-pch" in arguments:
        at = arguments.index("-include-pch")
        return read(arguments[:at] + arguments[at + 2:])
    if said.returncode == 0:
        return ""
    return said.stderr or f"clang ended with {said.returncode} and said nothing of {arguments[-1]}\n"


def read_all(jobs):
    """Says what is wrong with each of the argument lists, as it is found; returns how many are. As many at once as there
    are processors."""
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(read, jobs):
            wrong += bool(text)
            print(text, end="", flush=True)
    return wrong


def commands(build):
    return json.loads((build / "compile_commands.json").read_text())


def torch_flags(build):
    """Those of the library's sources, without its own definitions."""
    flags = next(flags_of(e["command"]) for e in commands(build) if "composer_objects.dir" in e["command"])
    return [flag for flag in flags if not flag.startswith(("-DCOMPOSER", "-DAT_PER"))]


def precompiled(build):
    """torch/nn/module.h, which takes ten seconds to read, and which most units of programs need."""
    source, header = build / "torch_nn.h", build / "torch_nn.pch"
    source.write_text("#include <c10/util/Logging.h>\n#include <torch/nn/module.h>\n")
    made = subprocess.run([CLANG, *torch_flags(build), "-x", "c++-header", str(source), "-o", str(header)],
                          capture_output=True, text=True)
    if made.returncode:
        sys.exit(made.stderr)
    return ["-include-pch", str(header)]


def units(build):
    """What the precompiled header hides, an include that is missing, the build finds, which has none."""
    with_nn, libtorch = precompiled(build), {flag for flag in torch_flags(build) if flag.endswith("/torch/csrc/api/include")}
    jobs = {}
    for entry in commands(build):
        flags = flags_of(entry["command"])
        # the same source in two programs is read once
        jobs.setdefault(entry["file"], [*flags, *(with_nn if libtorch.intersection(flags) else []), entry["file"]])
    return len(jobs), read_all(jobs.values())


def reaches_nn(name, seen):
    if name in seen or not (ROOT / name).exists():
        return False
    seen.add(name)
    includes = INCLUDE.findall((ROOT / name).read_text())
    return any(path.startswith("torch/nn") for path in includes) or any(reaches_nn(path, seen) for path in includes)


def headers(build, named):
    # What is a header's own is unused in a source that has nothing else.
    flags = [*torch_flags(build), "-Wno-pragma-once-outside-header", "-Wno-unused-const-variable", "-Wno-unused-function", "-x", "c++"]
    installed = [os.path.relpath(path, ROOT) for path in (build / "composer_headers.txt").read_text().splitlines()]
    installed = [name for name in installed if not named or name in named]
    with_nn = precompiled(build) if installed else []
    return len(installed), read_all([*flags, *(with_nn if reaches_nn(name, set()) else []), str(ROOT / name)]
                                    for name in installed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("units", "headers"))
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("header", nargs="*")
    given = parser.parse_args()
    build = given.build.resolve()
    if not (build / "compile_commands.json").is_file():
        parser.error(f"{build} has no compile_commands.json; configure it first")
    count, wrong = units(build) if given.what == "units" else headers(build, given.header)
    if count == 0 and not given.header:
        sys.exit(f"{given.what}: there is nothing to read in {build}; configure it first")
    print(f"{given.what}: clang has read {count}, of which {wrong} are wrong")
    sys.exit(wrong > 0)


main()
