#!/usr/bin/env python3
"""Lists the classes of composer/ that have the most to do, and the longest sources: advice, not a check.

A class with many fields or functions probably has several owners in it. A file may be as long as its one idea.
  scripts/owners.py [--most N]   so many of each (15)
"""
import argparse
import pathlib
import re

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--most", type=int, default=15, metavar="N")
most = parser.parse_args().most
root = pathlib.Path(__file__).resolve().parent.parent

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M)
CLASS = re.compile(r"\b(?:class|struct)\s+(?:COMPOSER_EXPORT\s+)?([\w:]+)(?:\s+final)?(?:\s*:[^;{}()]*)?\s*\{")
NOT_A_MEMBER = re.compile(r"^(?:using|typedef|friend|static_assert|enum|class|struct|template\s*<[^;]*>\s*(?:class|struct|friend))\b|^$")


def block(text, begin):
    """What stands between the brace at `begin` and the one that closes it."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin + 1:at]
    return text[begin + 1:]


def members(body):
    """The declarations in the body of a class; what stands in braces is left out."""
    found, current, depth = [], "", 0
    for char in body:
        if char == "{":
            depth += 1
            current += "{" if depth == 1 else ""
        elif char == "}":
            depth -= 1
            # a function's body ends its declaration; an initializer does not
            if depth == 0 and is_function(current):
                found.append(current)
                current = ""
        elif depth == 0 and char == ";":
            found.append(current)
            current = ""
        elif depth == 0:
            current += char
    return [re.sub(r"^\s*(?:public|private|protected)\s*:\s*", "", one).strip() for one in found]


def is_function(declaration):
    plain = re.sub(r"<[^<>()]*>", "", re.sub(r"<[^<>()]*>", "", declaration))
    plain = re.sub(r"<[^<>]*\([^<>]*>", "", plain)  # std::function<void()>
    head = re.split(r"[={]", plain.replace("operator=", "operator").replace("operator()", "operator"), 1)[0]
    return "(" in head


rows, lengths = [], []
for path in sorted((root / "composer").rglob("*")):
    if path.suffix not in (".h", ".cpp") or "gloo_shim" in path.parts:
        continue
    text = NOISE.sub(lambda match: "\n" * match.group().count("\n"), path.read_text())
    name = str(path.relative_to(root))
    lengths.append((path.read_text().count("\n"), name))
    for match in CLASS.finditer(text):
        own = [one for one in members(block(text, match.end() - 1)) if not NOT_A_MEMBER.match(one)]
        functions = {one for one in own if is_function(one) and not re.search(r"=\s*(?:delete|default)", one)}
        fields = sum(1 + len(re.findall(r",\s*\w+\s*(?=[,={]|$)", re.sub(r"<.*>", "", one.split("=")[0].split("{")[0])))
                     for one in own if not is_function(one) and not one.startswith("static"))
        rows.append((fields, len(functions), match.group(1), name))

print("fields, functions of a class")
for fields, functions, owner, name in sorted(rows, key=lambda row: -max(row[0] / 15, row[1] / 30))[:most]:
    print(f"{fields:4} {functions:4}  {owner} ({name})")
print("\nlines of a file")
for lines, name in sorted(lengths, reverse=True)[:most]:
    print(f"{lines:4}  {name}")
print(f"\n{len(lengths)} files, {sum(lines for lines, _ in lengths)} lines, {len(rows)} classes")
