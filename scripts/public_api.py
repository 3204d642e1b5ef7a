#!/usr/bin/env python3
"""Prints what an installed header declares for its users: without includes, private parts, namespaces "detail" and the bodies of functions.

scripts/website.py makes the API reference of it."""
import argparse
import pathlib
import re
import sys

from declarations import WORD, NOT_CODE, class_of, function_of, without_template

ROOT = pathlib.Path(__file__).resolve().parent.parent
LABEL = re.compile(r"\s*(public|protected|private):")
KEPT = ("#define",)  # of the preprocessor's lines


def pieces(text):
    """Cuts the text of a scope into declarations, each with the comments above it, labels ("private:") and lines of the preprocessor.

    Each piece is (text, where its code begins in it, where its outermost brace opens in it, or None)."""
    start, code, brace, at, depth = 0, None, None, 0, 0
    while at < len(text):
        skipped = NOT_CODE.match(text, at) if text[at] in "/\"'R#" and (text[at] != "'" or not text[at - 1].isalnum()) else None
        if skipped:
            if text[at] == "#" and depth == 0:
                yield text[start:skipped.end()], at - start, None
                start, code, brace = skipped.end(), None, None
            elif text[at] not in "/#" and code is None:
                code = at
            at = skipped.end()
            continue
        letter = text[at]
        if code is None and not letter.isspace():
            label = LABEL.match(text, at)
            if label:
                yield text[start:label.end()], at - start, None
                at = start = label.end()
                continue
            code = at
        depth += (letter in "{([") - (letter in "})]")
        if letter == "{" and depth == 1 and brace is None and is_body(text[code:at]):
            brace = at
        at += 1
        ends = letter == ";" or letter == "}" and brace is not None and not class_of(words(text[code:brace])) and not is_enum(text[code:brace])
        if depth == 0 and ends:
            behind = re.compile(r"[ \t]*//[^\n]*").match(text, at)  # its comment, on the same line
            at = behind.end() if behind else at
            yield text[start:at], code - start, None if brace is None else brace - start
            start, code, brace = at, None, None
    if text[start:].strip():
        yield text[start:], 0, None


def words(code):
    return WORD.findall(NOT_CODE.sub(" ", code))


def is_enum(head):
    return re.match(r"enum\b", head) is not None


def is_body(head):
    """Whether a brace behind these words opens the body of a namespace, class or function, and no value."""
    if re.match(r"(namespace|extern)\b", head) or is_enum(head) or class_of(words(head)):
        return True
    return head.endswith((" ", "\n")) and ")" in head and not re.search(r"=\s*$|\bconcept \w+ =", head)


def without_body(text, brace):
    """A function without its body, and without what a constructor initializes."""
    head, depth = text[:brace].rstrip(), 0
    begin = head.find("(", head.find("operator()") + len("operator()") if "operator()" in head else 0)
    for at in range(max(begin, 0), len(head)):
        depth += (head[at] in "([{") - (head[at] in ")]}")
        if depth == 0 and re.match(r"\s:\s", head[at:]) and ")" in head[:at]:
            head = head[:at].rstrip()
            break
    comment = re.search(r"//[^\n]*$", text)
    return head + ";" + (f"  {comment[0]}" if comment and text[brace:].count("\n") == 0 else "")


def shown(text, in_class):
    """The public declarations of a scope, as text."""
    result, private = "", in_class == "class"
    for piece, code, brace in pieces(text):
        label = LABEL.match(piece, code)
        if label and in_class:
            private = label[1] == "private"
            if not private:
                result += piece
            continue
        words_of = piece[code:]
        if private or words_of.startswith("friend ") and brace is None and not re.search(r"operator", words_of):
            continue
        if re.match(r"#", words_of):
            result += piece if words_of.startswith(KEPT) else ""
            continue
        if brace is None:
            result += piece
            continue
        head, inner = piece[code:brace], piece[brace + 1:piece.rindex("}")]
        if re.match(r"(inline )?namespace (\w+::)*detail\b", head) or re.match(r"namespace \{?$", head.strip()):
            continue
        if head.startswith("namespace"):
            result += shown(inner, None)
        elif is_enum(head):
            result += piece
        elif class_of(words(head)) or re.search(r"\b(struct|class|union)\b", head) and ")" not in head:
            kind = "class" if re.search(r"\bclass\b", re.sub(r"template\s*<.*?>", "", head)) else "struct"
            result += piece[:brace + 1] + shown(inner, kind).rstrip() + "\n" + " " * indent(piece, code) + piece[piece.rindex("}"):]
        elif in_class or not re.search(r"[\w>]::~?\w+\(", NOT_CODE.sub(" ", head)):  # no member that is defined behind its class
            result += without_body(piece, brace)
    return result


def indent(piece, code):
    return code - (piece.rfind("\n", 0, code) + 1)


def expanded(text):
    """With the lists of events, which the headers make by a macro."""
    rows = re.findall(r"^ *COMPOSER_X\((\w+), (\w+), (\w+)\) */\* (.*?) \*/", (ROOT / "composer/core/event.h").read_text(), re.M)

    def lines(found):
        body, around = found[2].replace("\\\n", " ").strip(), found[3]
        if body == "+1":
            return around.replace("0 COMPOSER_EVENTS(COMPOSER_X)", str(len(rows)))
        made = ""
        for event, method, kind, meaning in rows:
            line = body
            for name, value in zip(("NAME", "method", "kind"), (event, method, kind)):
                line = re.sub(rf"\b{name}\b", value, line)
            made += f"  {line}  // {meaning}\n"
        return re.sub(r" *COMPOSER_EVENTS\(COMPOSER_X\) *\n?", lambda _: made if around.startswith(" ") else "\n" + made, around)

    return re.sub(r"^#define COMPOSER_X\((.*?)\)((?:\\\n|[^\n\\])*)\n([^#]*?COMPOSER_EVENTS\(COMPOSER_X\)[^#]*)#undef COMPOSER_X\n", lines, text, flags=re.M)


def tidy(text):
    text = re.sub(r"COMPOSER_EXPORT |^ *\[\[no_unique_address\]\] ByName .*\n", "", text, flags=re.M)
    text = re.sub(r"(public|protected):\s*(?=\}|protected:|public:)", "", text)
    return re.sub(r"\n\s*\n(\s*\n)+", "\n\n", text).strip("\n")


def comment_of(lines):
    """The text of a comment, with its lines."""
    return "\n".join(re.sub(r"^ *// ?", "", line) for line in lines.strip().splitlines() if line.strip().startswith("//"))


def declared(header):
    """The comment at the top of the header, and (kind, name, comment, code) of what it declares, where kind is "class", "enum",
    "function", "alias" or "other"."""
    text = expanded(header.read_text())
    body = re.sub(r"^#(pragma once|include .*)\n", "\x00\n", text, flags=re.M)
    top = re.match(r"(?:\s|\x00|//[^\n]*\n)*", body)[0]
    lines = [block for block in re.split(r"\n\s*\n", top.replace("\x00", "\n")) if block.strip()]
    about = comment_of(lines[0]) if "\x00" in top and lines and re.match(r"(\s|\x00)*//", top) and top.rstrip(" \n").endswith("\x00") else ""
    code = tidy(shown(body[len(top):].replace("\x00\n", "") if about else body.replace("\x00\n", ""), None))
    found = []
    for piece, begin, brace in pieces(code):
        above, rest = piece[:begin], piece[begin:]
        if not rest.strip(" ;\n") or re.match(r"(template\s*<[^;]*>\s*)?(class|struct) \w+;|using [\w:]+;|static_assert|namespace \w+ = ", rest):
            continue  # nothing, declared in another header, or a short name
        section, _, own = above.rpartition("\n\n")
        head = words(piece[begin:brace] if brace is not None else rest)
        name, kind = class_of(head) if brace is not None else None, "class"
        if is_enum(rest):
            name, kind = re.match(r"enum (?:class )?(\w+)", rest)[1], "enum"
        elif name is None:
            alias = re.match(r"(?:template\s*<.*?>\s*)?(?:using (\w+)\s*=|.*?\bconcept (\w+)\s*=)", rest, re.S)
            macro = re.match(r"#define (\w+)", rest)
            value = re.match(r"(?:inline )?constexpr [^()]*?(\w+)\s*(?:=|\{)", rest)
            kind = "alias" if alias else "macro" if macro else "value" if value else "function"
            name = next(filter(None, (alias or macro or value).groups())) if alias or macro or value else function_of(without_template(head))
            name = name if name and not name.startswith("operator") else None
        found.append((kind, name, comment_of(own) if kind in ("class", "enum") else "", above, rest))
    return about, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header", type=pathlib.Path, nargs="+")
    for header in parser.parse_args().header:
        if not header.is_file():
            sys.exit(f"public_api: there is no header {header}")
        about, found = declared(header)
        print(about + "\n\n" if about else "", *(above + rest for *_, above, rest in found), sep="")


if __name__ == "__main__":
    main()
