#!/usr/bin/env python3
"""Writes the tables of options in the pages from the structs of the headers; --check fails if a page is out of date.

Between the marks <!-- options: NAME --> and <!-- end of options --> a page has a table of the fields of the struct NAME: their names, defaults
and comments, with a field's inherited ones. Each struct of options in an installed header has a table on one page."""
import argparse
import pathlib
import re
import sys

from declarations import installed_headers

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPOSER, DOCS = ROOT / "composer", ROOT / "docs"
TABLE = re.compile(r"(<!-- options: ([\w:]+) -->\n)(?:\|[^\n]*\n)*(<!-- end of options -->)")
NOT_GIVEN = {"NamedOptions"}  # a base class, whose fields nobody sets
BLOCKS = {"TrainerOptions", "FitOptions", "EvalOptions", "PredictOptions"}  # shown by docs/reference/trainer.md as a reader writes them


def installed():
    """The headers that a user may include, with what each contains."""
    return {name.removeprefix("composer/"): (ROOT / name).read_text() for name in installed_headers()}


def fields_of(body):
    """(name, default, comment) of each field: comments stand behind a field, go on in the lines below it, or are in the lines above."""
    fields, above, code = [], [], ""
    for line in body.splitlines():
        stripped, comment = re.fullmatch(r"""((?:[^"/]|"(?:\\.|[^"\\])*"|/(?!/))*)(?://(.*))?""", line).groups(default="")
        comment = comment.strip()
        if not stripped.strip():
            if not comment and not line.strip():
                above = []
            elif comment and len(stripped) > 4 and fields and not code:
                fields[-1][1].append(comment)  # aligned with the comment before
            elif comment:
                above.append(comment)
            continue
        code += " " + stripped.strip()
        if comment:
            above.append(comment)
        if not code.rstrip().endswith(";") or code.count("{") != code.count("}"):
            continue
        fields.append((code.strip().rstrip(";"), above))
        above, code = [], ""
    for code, comments in fields:
        if re.match(r"(using|static|friend|explicit|template)\b|\[\[no_unique_address\]\] ByName ", code) or re.search(r"\boperator\b", code):
            continue
        for declared in split_at_commas(re.sub(r"^(.*?)\s+(?=\w+\s*(=|\{|,|$))", r"\1 ", code)):
            found = re.fullmatch(r"(?:(?P<kind>[^\s=][^=]*?)\s+)?(?P<name>\w+)\s*(?:=\s*(?P<value>.*)|(?P<braces>\{.*\}))?", declared, re.S)
            if not found or "(" in (found["kind"] or "") and ")" not in found["kind"]:
                continue
            value = found["value"] if found["value"] is not None else found["braces"] or ""
            seconds = re.fullmatch(r"(?:Seconds\(|\{)([\d.]+)[)}]", value) if (found["kind"] or "").endswith("Seconds") else None
            yield found["name"], f"{seconds[1]} s" if seconds else " ".join(value.split()), " ".join(comments)


def split_at_commas(code):
    """`T a = x, b = y` declares two fields; commas in <>, () and {} separate none."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(code):
        depth += (letter in "<({[") - (letter in ">)}]" and code[at - 1:at + 1] != "->")
        if letter == "," and depth == 0:
            parts.append(code[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, code[start:]]]


def structs():
    """The header, the base and the fields of each struct of options. Of two with one name, the first has that of its module in front."""
    found = {}
    for header, text in installed().items():
        for name, base, body in re.findall(r"^struct (?:COMPOSER_EXPORT )?(\w*Options)(?: : (\w+))? \{ *(?://[^\n]*)?\n(.*?)^\};", text, re.S | re.M):
            if name in found:
                found[f"{found[name][0].partition('/')[0]}::{name}"] = found[name]
            found[name] = header, base, list(fields_of(body))
    return found


def without_default(header, name):
    """The fields of a struct that a user's compiler warns of if he leaves them out in braces. A Time has no default on purpose."""
    body = re.search(rf"^struct (?:COMPOSER_EXPORT )?{name}\b[^{{;]*\{{(.*?)^\}};", (COMPOSER / header).read_text(), re.S | re.M)[1]
    plain = r"(?:std::(?:string|vector<.*?>|optional<.*?>|function<.*?>|int64_t|filesystem::path)|at::Tensor|bool|double)"
    return re.findall(rf"^  {plain} (\w+)[,;]|^  {plain} \w[^{{}}]*, ([a-z]\w*)[,;]", re.sub(r"//.*", "", body), re.M)


def cell(text):
    return text.replace("|", "\\|")


def meaning(comment):
    """A comment as a cell: without a capital at its beginning and a full stop at its end; outside of code, `<` would begin a tag of HTML."""
    if re.match(r"(?!Composer|Nesterov)[A-Z][a-z]+\b", comment):
        comment = comment[0].lower() + comment[1:]
    return cell("`".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(comment.removesuffix(".").split("`"))))


def grouped(value):
    """65'536 as 65,536."""
    return re.sub(r"(?<=\d)'(?=\d{3})", ",", value)


def row(field, value, comment):
    required = re.match(r"(>=? [\d.]+, |)[Rr]equired(?! unless)(?:[,:;.] |$)", comment)
    if required:
        comment = (required[1] if comment[required.end():] else required[1].removesuffix(", ")) + comment[required.end():]
    default = "required" if required else f"`{cell(grouped(value))}`" if value else ""
    return f"| `{field}` | {default} | {meaning(comment)} |"


def table(name, known):
    """A field without a comment has that of the same field of another struct in its header."""
    header, base, fields = known[name]
    if base in known:
        fields = known[base][2] + fields
    told = {field: comment for other, _, others in known.values() if other == header for field, _, comment in others if comment}
    fields = [(field, value, comment or told.get(field, "")) for field, value, comment in fields]
    rows = [row(*field) for field in fields]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check, known, shown, wrong = parser.parse_args().check, structs(), {}, []
    for page in sorted(DOCS.rglob("*.md")):
        text, place = page.read_text(), page.relative_to(ROOT)
        for name in re.findall(r"<!-- options: ([\w:]+) -->", text):
            if name not in known:
                wrong.append(f"{place}: there is no struct {name} in an installed header")
            if name in shown:
                wrong.append(f"{place}: the table of {name} is in {shown[name]}, too")
            shown[name] = place
        if len(TABLE.findall(text)) != text.count("<!-- options:"):
            wrong.append(f"{place}: between <!-- options: NAME --> and <!-- end of options --> there must be nothing but the rows of a table")
        if wrong:
            continue
        written = TABLE.sub(lambda found: found[1] + table(found[2], known) + found[3], text)
        if written != text and check:
            wrong.append(f"{place}: a table of options is out of date; run scripts/tables.py")
        elif written != text:
            page.write_text(written)
    wrong += [f"composer/{known[name][0]}: {name}::{''.join(found)} needs a default, such as {{}}: without one a user's compiler warns"
              for name in sorted(known) if "::" not in name for found in without_default(known[name][0], name)]
    wrong += [f"composer/{known[name][0]}: {name} has no table in a page: write <!-- options: {name} --> and <!-- end of options -->"
              for name in sorted(set(known) - set(shown) - BLOCKS - NOT_GIVEN)]
    print("\n".join(wrong) or f"tables: {len(shown)} structs of options are shown")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
