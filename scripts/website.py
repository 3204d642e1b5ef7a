#!/usr/bin/env python3
"""Prepares the website for MkDocs: Markdown in a folder, and the navigation. scripts/docs builds the site of it.

The site consists of README.md, the pages below docs/, the sources of the examples, the other pages at the root, and a reference of every
installed header, made from the headers. Folders and first headings make the navigation; ORDER says what comes first. A link to a file of the
repository that is no page leads to a page with its text."""
import argparse
import collections
import itertools
import json
import pathlib
import posixpath
import re
import shutil
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # MkDocs imports this file by its path
from public_api import comment_of, declared  # noqa: E402

FENCE = re.compile(r"^(?P<fence> *(?:```|~~~)).*?^(?P=fence) *$", re.S | re.M)
HEADING = re.compile(r"^(#+) +(.*?) *#*$", re.M)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".cmake": "cmake", ".json": "json", ".txt": "cmake", ".yml": "yaml"}

# What comes first in a folder, by its name on the site; the rest follows by its titles, and folders last.
ORDER = {
    "guides": "tables images text series own-loop gan processes sweep deploy find-a-nan why-slow from-a-loop from-composer from-lightning examples".split(),
    "concepts": "loop state time data metrics checkpoints ranks".split(),
    "reference": "trainer events models optimizers schedules metrics evaluators precision tuning hyperparameters checkpoints weights uploads watching "
                 "predict export distributed several_trainers recipes cli gpu building".split(),
    "reference/data": "tables images text series splits streaming memory replay".split(),
    "internals": "differences benchmarks scaling products reliability checkpoint-format".split(),
    "project": "CHANGELOG ARCHITECTURE CONTRIBUTING".split(),
}
LAST = {"reference": "data algorithms callbacks loggers api".split(), "project": ["files"]}
SECTIONS = [("getting-started", None), ("guides", "Guides"), ("concepts", "Concepts"), ("reference", "Reference"), ("internals", "Internals"), ("project", "Project")]
TITLES = {"reference/algorithms": "Algorithms", "reference/callbacks": "Callbacks", "reference/loggers": "Loggers", "reference/data": "Data",
          "reference/api": "API by header", "guides/examples": "Examples", "project/files": "Files"}


def place_of(path):
    """Where a file of the repository, given by its path in it, is on the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        place = path.removeprefix("docs/")
        if (ROOT / path).with_suffix("").is_dir() and path.endswith(".md") or posixpath.basename(path) == "README.md":
            place = posixpath.join(posixpath.dirname(place) if path.endswith("README.md") else place.removesuffix(".md"), "index.md")
        return place
    if path.startswith("examples/") and path.endswith((".cpp", ".h")):
        return f"guides/{path}.md"
    if "/" not in path and path.endswith(".md"):
        return f"project/{path}"
    if path in headers():
        module, _, name = path.removeprefix("composer/").rpartition("/")
        return f"reference/api/{module.replace('/', '_') or 'all'}.md#{anchor_of(path)}"
    return f"project/files/{path.replace('/', '_')}.md"


def headers():
    return re.findall(r'^#include "(composer/.*)"$', (ROOT / "composer/composer.h").read_text(), re.M)


def namespaces(text):
    """Where a header declares more than what other headers define."""
    bodies = re.findall(r"^namespace ([\w:]+) \{\n(.*?)^\}", text, re.S | re.M)
    return list(dict.fromkeys(name for name, body in bodies if "detail" not in name and not re.fullmatch(r"(\s*(class|struct) \w+;)*\s*", body)))


def anchor_of(heading):
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")


def outside_code(text, change):
    """The text with `change` made to what is not in blocks of code."""
    result, at = "", 0
    for found in FENCE.finditer(text):
        result += change(text[at:found.start()]) + found[0]
        at = found.end()
    return result + change(text[at:])


class Site:
    def __init__(self):
        self.pages = {}    # the text of each page by its place
        self.copies = {}   # files that are copied, by their place
        self.waiting = []  # files that are linked to and have no page yet

    def read(self):
        self.add_page("README.md")
        for path in sorted((ROOT / "docs").rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix == ".md":
                self.add_page(name)
            elif path.suffix in (".png", ".svg", ".jpg"):
                self.copies[place_of(name)] = path
        for path in sorted(ROOT.glob("*.md")):
            if path.name != "README.md":
                self.add_page(path.name)
        for path in sorted((ROOT / "examples").iterdir()):
            if path.suffix in (".cpp", ".h"):
                self.add_source(str(path.relative_to(ROOT)))
        self.add_headers()
        while self.waiting:
            self.add_source(self.waiting.pop())
        self.add_lists()

    def add_page(self, path):
        place = place_of(path)
        seen = collections.Counter()

        def heading(found):
            anchor = anchor_of(found[2])
            seen[anchor] += 1
            number = seen[anchor] - 1
            return f"{found[1]} {found[2]} {{#{anchor}{f'-{number}' if number else ''}}}"

        def change(text):
            text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
            text = re.sub(r"\{(?=[^{}`\n]*\} *(?:\||$))", r"\\{", text, flags=re.M)  # would be attributes
            text = HEADING.sub(heading, text)
            text = LINK.sub(lambda found: found[1] + self.link(path, place, found[2]) + found[3], text)
            text = re.sub(r"^\|.*\|$", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), text, flags=re.M)
            return lists(text)

        text = re.sub(r"^<!--.*?-->\n", "", (ROOT / path).read_text(), flags=re.S | re.M)  # also those with code in them
        self.pages[place] = outside_code(text, change)

    def add_source(self, path):
        place = place_of(path)
        if place in self.pages:
            return
        text = (ROOT / path).read_text()
        language = LANGUAGES.get(posixpath.splitext(path)[1], "python" if "python" in text[:40] else "bash" if text.startswith("#!") else "text")
        comment = re.match(r"((?://[^\n]*\n)+)", text)
        about = words_of(comment_of(comment[1])) + "\n\n" if comment else ""
        self.pages[place] = f"# {posixpath.basename(path)} {{#{anchor_of(path)}}}\n\n{about}The file `{path}`:\n\n````{language}\n{text.rstrip()}\n````\n"

    def link(self, path, place, target):
        """Where a link in a file of the repository leads on the site."""
        if "://" in target or target.startswith(("#", "mailto:")):
            return target
        name, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        full = ROOT / file
        if full.is_dir():
            if (full / "README.md").exists():
                file += "/README.md"
            elif file.startswith("docs/") or file == "examples":
                return relative(place, ("guides/examples" if file == "examples" else file.removeprefix("docs/")) + "/index.md")
            else:
                return "https://" + file  # the build says that this link leads nowhere
        to = place_of(file)
        if full.is_file() and to.startswith("project/files/"):
            self.waiting.append(file)
        return relative(place, to) + (f"#{anchor}" if anchor else "")

    def add_headers(self):
        modules, index = collections.defaultdict(list), []
        for path in headers():
            modules[path.removeprefix("composer/").rpartition("/")[0]].append(path)
        for module, paths in modules.items():
            place, text = f"reference/api/{module.replace('/', '_')}.md", f"# composer/{module}\n\nThe headers of `composer/{module}`, and what they declare.\n"
            for path in paths:
                about, found = declared(ROOT / path)
                spaces = namespaces((ROOT / path).read_text())
                text += f"\n## {posixpath.basename(path)} {{#{anchor_of(path)}}}\n\n```cpp\n#include <{path}>\n```\n\n"
                text += f"{words_of(about)}\n\n" if about else ""
                text += f"In namespace {' and '.join(f'`{space}`' for space in spaces)}.\n\n" if spaces else ""
                run = ""
                for kind, name, comment, above, code in found:
                    anchor = f"{anchor_of(path)}-{name}"
                    if name:
                        index.append((name, kind, place, anchor if kind in ("class", "enum") else anchor_of(path), path))
                    if kind not in ("class", "enum"):
                        run += above + code
                        continue
                    text += fenced(run) + f"### {name} {{#{anchor}}}\n\n" + (f"{words_of(comment)}\n\n" if comment else "")
                    run = ""
                    text += fenced(code)
                text += fenced(run)
            self.pages[place] = text
        self.pages["reference/api/index.md"] = names_page(index)

    def add_lists(self):
        """A page for each folder of pages that has none."""
        for folder in sorted({posixpath.dirname(place) for place in self.pages} - {"", "project"}):
            if f"{folder}/index.md" in self.pages:
                continue
            rows = "".join(f"- [{title}]({relative(folder + '/index.md', place)})\n" for title, place in self.entries(folder) if isinstance(place, str))
            self.pages[f"{folder}/index.md"] = f"# {TITLES.get(folder) or folder.rpartition('/')[2].capitalize()}\n\n{rows}"

    def title(self, place):
        found = HEADING.search(FENCE.sub("", self.pages[place]))
        if not found:
            sys.exit(f"website: {place} has no heading")
        return re.sub(r" \{#.*\}$", "", found[2]).replace("`", "")

    def entries(self, folder):
        """(title, place or entries) of what is in a folder, in order."""
        prefix, found = f"{folder}/", {}
        for place in self.pages:
            if place.startswith(prefix) and place != f"{folder}/index.md":
                name, below, _ = place.removeprefix(prefix).partition("/")
                found.setdefault(name.removesuffix(".md"), f"{folder}/{name}" if below else place)
        first, last = ORDER.get(folder, []), LAST.get(folder, [])

        def rank(item):
            name, place = item
            title = TITLES.get(place) or (self.title(place) if place.endswith(".md") else name)
            return (first.index(name) if name in first else len(first), last.index(name) + 1 if name in last else 0, title.lower())

        for name, place in sorted(found.items(), key=rank):
            if place in self.pages:
                yield self.title(place), place
            else:
                index = f"{place}/index.md"
                title = TITLES.get(place) or (self.title(index) if index in self.pages else name.capitalize())
                yield title, [*([index] if index in self.pages else []), *({t: p} for t, p in self.entries(place))]

    def navigation(self):
        navigation = [{"Home": "index.md"}]
        for name, title in SECTIONS:
            if title is None:
                navigation += [{self.title(f"{name}.md"): f"{name}.md"}] if f"{name}.md" in self.pages else []
            elif any(place.startswith(f"{name}/") for place in self.pages):
                index = [f"{name}/index.md"] if f"{name}/index.md" in self.pages else []
                navigation.append({title: [*index, *({t: p} for t, p in self.entries(name))]})
        return navigation

    def write(self, folder):
        """Writes what has changed, so that MkDocs builds nothing again without a reason."""
        wanted = {folder / place: f"---\ntitle: {json.dumps(self.title(place))}\n---\n\n{text}" for place, text in self.pages.items()}
        wanted[folder / "style.css"] = STYLE
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        for place, source in self.copies.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != source.read_bytes():
                shutil.copyfile(source, path)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path not in wanted and str(path.relative_to(folder)) not in self.copies:
                path.unlink()


STYLE = """\
.md-typeset pre > code { font-size: .8em; line-height: 1.45; }
.md-typeset table:not([class]) { font-size: .7rem; }
.md-typeset table:not([class]) th { min-width: 0; padding: .5em .8em; }
.md-typeset table:not([class]) td { padding: .5em .8em; }
.md-typeset table:not([class]) td:first-child code { white-space: nowrap; }
.md-typeset h1, .md-typeset h2, .md-typeset h3, .md-typeset p, .md-typeset li { overflow-wrap: anywhere; }
@media screen and (max-width: 44.9375em) {
  .md-typeset table:not([class]) th, .md-typeset table:not([class]) td { padding: .4em .5em; }
  .md-typeset table:not([class]) td:last-child { min-width: 9rem; }
  .md-typeset table:not([class]) td:first-child code { display: inline-block; max-width: 7rem; white-space: normal; overflow-wrap: break-word; word-break: normal; }
}
@media screen and (min-width: 76.25em) { .md-grid { max-width: 68rem; } }
"""


def relative(place, to):
    to, _, anchor = to.partition("#")
    return posixpath.relpath(to, posixpath.dirname(place) or ".") + (f"#{anchor}" if anchor else "")


def lists(text):
    """Lists as GitHub reads them: without an empty line above, and with what is in an item indented by two spaces or three."""
    lines, result, within = text.split("\n"), [], False
    for line, before in zip(lines, ["", *lines]):
        item = re.match(r" {0,3}(?:[-*]|1\.) ", line)
        if item and not within and before.strip():
            result.append("")
        within = bool(item) or within and (not line.strip() or line.startswith(" "))
        inside = re.match(r" {2,3}(?=\S)", line) if within and (not before.strip() or re.match(r" +(?:[-*]|\d+\.) ", line)) else None
        result.append(" " * 4 + line[inside.end():] if inside else line)
    return "\n".join(result)


def words_of(comment):
    """A comment as Markdown: paragraphs, and code where its lines are indented."""
    result = []
    for block in re.split(r"\n\s*\n", comment):
        for code, lines in itertools.groupby(block.splitlines(), key=lambda line: line.startswith("  ")):
            text = "\n".join(lines)
            if code:
                result.append(fenced(textwrap.dedent(text)).strip())
                continue
            parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
            result.append("".join(part if part.startswith("`") else re.sub(r"([>*_\[\]#])", r"\\\1", part).replace("<", "&lt;") for part in parts))
    return "\n\n".join(result)


def fenced(code):
    return f"```cpp\n{code.strip(chr(10)).rstrip()}\n```\n\n" if code.strip() else ""


def names_page(index):
    text = "# API by header\n\nThe names that the installed headers declare, and the header of each. `#include <composer/composer.h>` includes all of them.\n"
    known = {}
    for name, kind, place, anchor, path in index:
        known.setdefault((name, path), (kind, place, anchor))
    letters = collections.defaultdict(list)
    for name, path in sorted(known, key=lambda key: (key[0].lower(), key)):
        letters[name[0].upper()].append((name, path))
    for letter in sorted(letters):
        text += f"\n## {letter}\n\n| name | what | header |\n|---|---|---|\n"
        for name, path in letters[letter]:
            kind, place, anchor = known[name, path]
            text += f"| [`{name}`]({posixpath.basename(place)}#{anchor}) | {kind} | `{path}` |\n"
    return text


def made():
    site = Site()
    site.read()
    return site


def on_config(config):
    """MkDocs calls this before each build, also when a page has changed while it serves."""
    site = made()
    site.write(pathlib.Path(config["docs_dir"]))
    config["nav"] = site.navigation()
    return config


def listed(navigation):
    for entry in navigation:
        for place in [entry] if isinstance(entry, str) else entry.values():
            yield from [place] if isinstance(place, str) else listed(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", help="where the pages are written; without it only the navigation is printed")
    folder = parser.parse_args().folder
    site = made()
    missing = sorted(set(site.pages) - set(listed(site.navigation())))
    if missing:
        sys.exit("website: not in the navigation: " + " ".join(missing))
    if folder:
        site.write(folder)
    else:
        print(json.dumps(site.navigation(), indent=1))


if __name__ == "__main__":
    main()
