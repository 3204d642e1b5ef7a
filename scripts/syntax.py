#!/usr/bin/env python3
"""clang reads what g++ compiles, and each public header alone; what it says is an error.

    scripts/syntax.py units BUILD     the units of BUILD/compile_commands.json
    scripts/syntax.py headers BUILD   the headers that are installed, each as the first and only one of a source

A header that leads to torch/nn is read after a precompiled torch/nn/module.h: alone, each takes ten seconds. So a missing
include of that header's own is found in all but these, where only missing includes of ours are.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG = os.environ.get("COMPOSER_CLANG", "clang++-19")
GCC_ALONE = {"-Wno-subobject-linkage", "-Wno-maybe-uninitialized", "-Wno-tsan"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.M)


def flags_of(command):
    """The arguments of a compilation without the compiler, what is compiled, and where to."""
    words = shlex.split(command)
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MT", "-MF"):
            skip = word != "-c"
        elif word not in GCC_ALONE and word != "-MD" and not word.endswith((".cpp", ".cxx")):
            kept.append(word)
    return kept


def read(arguments):
    said = subprocess.run([CLANG, "-fsyntax-only", *arguments], capture_output=True, text=True)
    return said.stderr if said.returncode else ""


def read_all(jobs):
    """What was wrong, for each of the argument lists; as many at once as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [text for text in pool.map(read, jobs) if text]


def commands(build):
    return json.loads((build / "compile_commands.json").read_text())


def units(build):
    jobs = {}
    for entry in commands(build):
        # the same source in two programs is read once
        jobs.setdefault(entry["file"], [*flags_of(entry["command"]), entry["file"]])
    return len(jobs), read_all(jobs.values())


def reaches_nn(name, seen):
    if name in seen or not (ROOT / name).exists():
        return False
    seen.add(name)
    includes = INCLUDE.findall((ROOT / name).read_text())
    return any(path.startswith("torch/nn") for path in includes) or any(reaches_nn(path, seen) for path in includes)


def headers(build):
    flags = next(flags_of(e["command"]) for e in commands(build) if "composer_objects.dir" in e["command"])
    # What is a header's own is unused in a source that has nothing else.
    flags += ["-Wno-pragma-once-outside-header", "-Wno-unused-const-variable", "-Wno-unused-function"]
    installed = [os.path.relpath(path, ROOT) for path in (build / "composer_headers.txt").read_text().splitlines()]
    nn = {name for name in installed if reaches_nn(name, set())}
    precompiled = build / "torch_nn.pch"
    source = build / "torch_nn.h"
    source.write_text("#include <torch/nn/module.h>\n")
    made = subprocess.run([CLANG, *flags, "-x", "c++-header", str(source), "-o", str(precompiled)], capture_output=True, text=True)
    if made.returncode:
        return len(installed), [made.stderr]
    with_nn = ["-include-pch", str(precompiled)]
    return len(installed), read_all([*flags, *(with_nn if name in nn else []), "-x", "c++", str(ROOT / name)] for name in installed)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("units", "headers"):
        sys.exit(__doc__)
    count, wrong = {"units": units, "headers": headers}[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve())
    print("\n".join(wrong) or f"{sys.argv[1]}: clang has read {count}")
    sys.exit(bool(wrong))


main()
