#!/usr/bin/env python3
"""Makes sources of the C++ blocks of all pages, so that each block is compiled.

A block that is part of a source below examples/ or tests/ is compiled there already (spaces and comments do not count); sources.txt lists these. Every other block becomes a part of a source made here, one for each folder of pages:
- a block with int main() is a program of its own, PROGRAMS/NAME.cpp, whose name is that of the page (or of the file that a mark names);
- a block that begins, after its #include lines, with a struct, class, enum, template, namespace or using is at namespace scope;
- a block that begins with a dot is a list of options in braces: of TrainerOptions, or of what a mark names;
- every other block is the body of a function.
Marks are comments of HTML, which no reader sees:
  <!-- blocks: CODE -->     on a page: declarations that its blocks use
  <!-- continues -->        above a block: it goes on in the function of the block before
  <!-- in: TYPE -->         above a block that begins with a dot: whose options these are
  <!-- member of: CLASS --> above a block: members of a class derived from CLASS
  <!-- file: NAME.cpp -->   above a program: its name. On a page that has the file CMakeLists.txt, files are compiled by the test of the page"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCOPE = re.compile(r"(?:struct|class|enum|template|namespace|using|inline|COMPOSER_)\b")
MARK = re.compile(r"<!-- (continues|in|member of|file)(?:: (.*?))? -->\s*$")


def without_space(code):
    return re.sub(r"\s+", "", re.sub(r"//[^\n]*", "", code)).replace("COMPOSER_EXPORT", "")


def blocks_of(page):
    """(line, mark, its value, code) of each C++ block."""
    text = page.read_text()
    for found in re.finditer(r"^```cpp\n(.*?)^```", text, re.S | re.M):
        mark = MARK.search(text[:found.start()].rpartition("\n\n")[2])
        yield text[:found.start()].count("\n") + 2, mark and mark[1], mark and mark[2], found[1]


class Compiled:
    """What is compiled without this script."""

    def __init__(self):
        sources = [path for room in ("examples", "tests") for path in sorted((ROOT / room).rglob("*.cpp"))]
        sources += [path for path in sorted((ROOT / "tests").rglob("*.h"))]
        self.sources = {path: without_space(path.read_text()) for path in sources}
        self.used = set()  # those that have a block

    def has(self, code):
        code = without_space(code)
        for path, text in self.sources.items():
            if code in text:
                self.used.add(path)
                return True
        return False


def name_of(page):
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))


def units():
    """The text of each source by its name, that of each program, and the sources that have blocks already."""
    compiled, sources, programs = Compiled(), {}, {}
    for page in PAGES:
        place, name = page.relative_to(ROOT), name_of(page)
        given = re.findall(r"<!-- blocks:\n?(.*?)-->", page.read_text(), re.S)
        builds_files = "<!-- file: CMakeLists.txt -->" in page.read_text()
        parts, includes, last = [], [], None
        for line, mark, value, code in blocks_of(page):
            if builds_files if mark == "file" else compiled.has(code):
                continue
            if re.search(r"\bint main\(", code):
                file = value if mark == "file" else f"{page.stem}.cpp"
                if file in programs and programs[file][0] != page:
                    sys.exit(f"blocks: {place} and {programs[file][0].relative_to(ROOT)} both have a program {file}")
                programs[file] = page, code
                continue
            includes += re.findall(r"^#include .*$", code, re.M)
            body = f'#line {line} "{place}"\n' + re.sub(r"^#include .*$", "", code, flags=re.M)
            if mark == "continues" and last is not None:
                parts[last] = parts[last].removesuffix("}\n") + body + "}\n"
                continue
            first = re.sub(r"\A(\s*(//|#include)[^\n]*\n)*\s*", "", code)
            function = f"[[maybe_unused]] static auto block_{line}()"
            last = None
            if mark == "member of":
                parts.append(f"struct Block{line} : {value} {{\nusing {value}::{value.rpartition('::')[2]};\n{body}}};\n")
            elif first.startswith("."):
                parts.append(f"{function} {{\nreturn {value or 'TrainerOptions'}{{\n{body}}};\n}}\n")
            elif SCOPE.match(first):
                parts.append(body)
            else:
                last = len(parts)
                parts.append(f"{function} {{\n{body}}}\n")
        if parts:
            unit = sources.setdefault(name_of(page.parent / "pages.md") if page.parent != ROOT else "readme", [[], []])
            unit[0] += includes + re.findall(r"^#include .*$", "".join(given), re.M)
            declared = re.sub(r"^#include .*$", "", "".join(given), flags=re.M)
            unit[1].append(f"namespace {name} {{\nnamespace nn = torch::nn;\nusing namespace composer;\nusing namespace std::chrono_literals;\n"
                           f'#line 1 "{place} (blocks:)"\n{declared}\n{"".join(parts)}}}  // namespace {name}\n')
    return {unit: "\n".join([*dict.fromkeys(["#include <composer/composer.h>", "#include <torch/nn.h>", "#include <chrono>", "#include <iostream>",
                                             *head]), "", *body])
            for unit, (head, body) in sources.items()}, {file: code for file, (_, code) in programs.items()}, compiled.used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where the sources are written, with the programs below programs/")
    folder = parser.parse_args().folder
    sources, programs, used = units()
    texts = {folder / f"{name}.cpp": text for name, text in sources.items()}
    texts |= {folder / "programs" / file: text for file, text in programs.items()}
    texts[folder / "sources.txt"] = "".join(f"{path}\n" for path in sorted(used))
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    for path in {*folder.glob("*.cpp"), *folder.glob("programs/*.cpp")} - set(texts):
        path.unlink()
    for path, text in texts.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
