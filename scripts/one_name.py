#!/usr/bin/env python3
"""Fails if two classes of composer/ and tests/ have one name.

The unit tests link the library's objects, so a class of a test and one of the library with the same name and namespace would
be mixed up without a word: the linker keeps one of two destructors. Classes in anonymous namespaces do not meet, nor do
those of programs that are compiled apart (tests/compile_fail, tests/package).
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
APART = ("tests/compile_fail/", "tests/package/")
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
                      r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.S | re.M)
WORD = re.compile(r"[A-Za-z_]\w*|\S")


def class_of(head):
    """The name of the class whose body follows these words; None if it is another body, or a specialization."""
    depth, at = 0, None
    for i, word in enumerate(head):
        depth += (word == "<") - (word == ">")
        if depth == 0 and word in ("struct", "class"):
            at = i
    if at is None or {"=", "enum"}.intersection(head):
        return None
    name = ""
    for i in range(at + 1, len(head)):
        if head[i] == "<" or (head[i] == ":" and head[i + 1:i + 2] != [":"] and head[i - 1] != ":"):
            return name if head[i] == ":" else None
        if head[i] == "final":
            break
        if head[i] != "COMPOSER_EXPORT":
            name += head[i]
    return name or None


def classes_in(text):
    """The classes that are defined in namespaces with names."""
    words = WORD.findall(NOT_CODE.sub(" ", text))
    inside, begin, parentheses = [], 0, 0
    for i, word in enumerate(words):
        if word == "{":
            head = words[begin:i]
            namespace = "namespace" in head[:2] and parentheses == 0
            if namespace:
                inside.append("".join(head[head.index("namespace") + 1:]))
            else:
                name = class_of(head) if parentheses == 0 else None
                if name and all(inside):
                    yield "::".join([*inside, name])
                inside.append(None)
        elif word == "}" and inside:
            inside.pop()
        parentheses += (word == "(") - (word == ")")
        if word in "{};" and parentheses == 0:
            begin = i + 1


def main():
    where = collections.defaultdict(set)
    for file in sorted(path for room in ("composer", "tests") for path in (ROOT / room).rglob("*")):
        name = str(file.relative_to(ROOT))
        if file.suffix in (".h", ".cpp") and not name.startswith(APART):
            for each in classes_in(file.read_text()):
                where[each].add(name)
    wrong = [f"{name} is a class in each of {', '.join(sorted(files))}" for name, files in where.items() if len(files) > 1]
    print("\n".join(wrong) or f"one_name: {len(where)} classes, each with a name of its own")
    sys.exit(bool(wrong))


main()
