#!/usr/bin/env python3
"""Writes the tables of docs/reference/old-names.md from composer/core/old_names.cpp; --check fails if the page is out of date.

A table stands between <!-- old names: KIND --> and <!-- end of old names -->. What the rows call ours must occur in the code of a header of
composer/, be the name of a plug-in, or be a subcommand of the program composer; the rows themselves do not count."""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/old-names.md"
TABLE = re.compile(r"(<!-- old names: (\w+) -->\n).*?(<!-- end of old names -->)", re.S)
TEXT = r'"((?:[^"\\]|\\.)*)"'
ROW = re.compile(rf"\{{{TEXT},\s*NameKind::(\w+),\s*{TEXT},\s*{TEXT},\s*{TEXT}\}}")
PAGES = re.compile(r"docs/reference/([\w/-]+\.md)")


def rows():
    for found in ROW.findall((ROOT / "composer/core/old_names.cpp").read_text()):
        yield [text.replace('\\"', '"') for text in found]


def known():
    """The words of all headers, and the names by which registries make plug-ins."""
    words = set()
    for path in (ROOT / "composer").rglob("*"):
        if path.suffix not in (".h", ".cpp") or path.stem == "old_names":
            continue
        text = re.sub(r"//.*", "", path.read_text())
        if path.suffix == ".h":
            words |= set(re.findall(r"\w+", text))
        words |= set(re.findall(r'"(\w+)"', text))
    return words


def table(kind, ours):
    lines = ["| there | name | here | |", "|---|---|---|---|"]
    for whose, its_kind, name, our, note in rows():
        if its_kind != kind:
            continue
        for word in re.findall(r"\w+", our):
            if word not in ours:
                sys.exit(f'old_names: "{name}" leads to {our}, which does not exist')
        note = PAGES.sub(lambda found: f"[{found[1]}]({found[1]})", note)
        lines.append(f"| {whose} | `{name}` | {f'`{our}`' if our else 'none'} | {note + ' ' if note else ''}|")
    return "\n".join(lines) + "\n"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--check", action="store_true", help="write nothing")
options = parser.parse_args()
text, ours = PAGE.read_text(), known()
if sorted(kind for _, kind, _ in TABLE.findall(text)) != sorted({kind for _, kind, *_ in rows()}):
    sys.exit("old_names: docs/reference/old-names.md needs one table of each kind of names")
made = TABLE.sub(lambda found: found[1] + table(found[2], ours) + found[3], text)
if options.check:
    if made != text:
        sys.exit("old_names: docs/reference/old-names.md is out of date; run scripts/old_names.py")
else:
    PAGE.write_text(made)
