#!/usr/bin/env python3
"""Fails if two classes of composer/ and tests/ have one name.

The unit tests link the library's objects, so a class of a test and one of the library with the same name and namespace would
be mixed up without a word: the linker keeps one of two destructors. Classes in anonymous namespaces do not meet, nor do
those of programs that are compiled apart (tests/compile_fail, tests/package).
"""
import argparse
import collections
import pathlib
import sys

from declarations import declared_in

ROOT = pathlib.Path(__file__).resolve().parent.parent
APART = ("tests/compile_fail/", "tests/package/")


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    where = collections.defaultdict(set)
    for file in sorted(path for room in ("composer", "tests") for path in (ROOT / room).rglob("*")):
        name = str(file.relative_to(ROOT))
        if file.suffix in (".h", ".cpp") and not name.startswith(APART):
            for kind, each in declared_in(file.read_text()):
                if kind == "class":
                    where[each].add(name)
    wrong = [f"{name} is a class in each of {', '.join(sorted(files))}" for name, files in where.items() if len(files) > 1]
    print("\n".join(wrong) or f"one_name: {len(where)} classes, each with a name of its own")
    sys.exit(bool(wrong))


main()
