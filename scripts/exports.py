#!/usr/bin/env python3
"""Fails if libcomposer.so lacks a function or an object that an installed header declares.

The unit tests contain the library's objects, so none of them would miss an export. What the objects define and the library
does not export is compared with the installed headers: with their classes, if it is a member, or else with the names that
they declare. What is inline is defined where it is used, and needs no export.
"""
import argparse
import pathlib
import re
import subprocess
import sys

from declarations import declared_in


def demangled(symbols):
    said = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, said.stdout.splitlines()))


def defined(objects):
    """(symbol, visibility) of what these objects define for others, and not inline."""
    said = subprocess.run(["readelf", "-sW", *objects], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        words = line.split()  # number, value, size, type, binding, visibility, section, name
        if len(words) == 8 and words[3] in ("FUNC", "OBJECT") and words[4] == "GLOBAL" and words[6] != "UND":
            yield words[7], words[5]


def path_of(name):
    """composer::Trainer::fit of "composer::Trainer::fit(composer::FitOptions) const", as a list; no template arguments."""
    name = re.sub(r"\[abi:\w+\]", "", name)
    before, operator = (re.split(r"\boperator", name, maxsplit=1) + [""])[:2]
    if operator and not operator[0].isalnum() and operator[0] != "_":
        return path_of(before + "operator")[:-1] + ["operator" + operator[:operator.index("(", 1)]]
    depth, plain = 0, ""
    for letter in name:
        if letter == "(" and depth == 0:
            break
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            plain += letter
    return plain.split(" ")[-1].split("::")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a folder that CMake has configured")
    build = parser.parse_args().build.resolve()
    if not (build / "composer_headers.txt").is_file():
        parser.error(f"{build} is no folder that CMake has configured for libcomposer")
    headers = (build / "composer_headers.txt").read_text().splitlines()
    declared = {each for header in headers for each in declared_in(pathlib.Path(header).read_text())}
    objects = [str(path) for kind in ("composer_base", "composer_objects")
               for path in (build / f"composer/CMakeFiles/{kind}.dir").rglob("*.o")]
    inside = sorted({symbol for symbol, visibility in defined(objects) if visibility == "HIDDEN"})
    wrong = []
    for name in sorted(set(demangled(inside).values())):
        path = path_of(name)
        if ("function", "::".join(path)) in declared or ("class", "::".join(path[:-1])) in declared:
            wrong.append(f"an installed header declares it without COMPOSER_EXPORT: {name}")
    print("\n".join(wrong) or f"exports: {len(inside)} functions and objects are the library's own, and no installed header has them")
    sys.exit(bool(wrong) or not inside)


main()
