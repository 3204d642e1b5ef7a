#!/usr/bin/env python3
"""Checks the pages of docs/ against the code:
- the blocks of options in docs/reference/trainer.md list the fields of the structs in order and with their defaults;
- the page of a plug-in names its header, the list of a folder of plug-ins has a row for each, and links lead to pages and headings that exist;
- the table of optimizers has a row for each, as has the list of the tests that try each;
- docs/reference/state.md has a row for each field of State, of Timestamp and of Reported, in order and with its type, and for each function
  of Tensors;
- the packages in docs/reference/building.md are those that the scripts install."""
import argparse
import pathlib
import re
import sys

from website import anchor_of

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
root = pathlib.Path(__file__).resolve().parent.parent
docs = root / 'docs'
reference = docs / 'reference'

STRUCTS = ['TrainerOptions', 'FitOptions', 'EvalOptions', 'PredictOptions']  # of composer/trainer/trainer.h


def without_comments(code):
    return re.sub(r'//[^\n]*', '', code)


def without_space(code):
    return re.sub(r'\s+', '', code)


def blocks_of(page):
    return re.findall(r'^```cpp\n(.*?)^```', (reference / page).read_text(), re.S | re.M)


def fields_of(header, struct):
    """(name, default) of each field, in order: `T name = default;` or `T name{value};`, whose default is T{value}."""
    body = re.search(rf'^struct {struct} {{\n(.*?)^}};', header, re.S | re.M).group(1)
    fields = []
    for field in without_comments(body).split(';'):
        if not field.strip():
            continue
        found = re.fullmatch(r'\s*(\S.*?)\s+(\w+)\s*(?:=\s*(.*?)|({.*}))\s*', field, re.S)
        if not found:
            sys.exit(f'pages: cannot read the field "{field.strip()}" of {struct}')
        kind, name, default, braces = found.groups()
        fields.append((name, without_space(default if braces is None else kind + braces)))
    return fields


def listed_in(block):
    """(name, value, whether it is marked as required) of each line `.name = value,  // comment`."""
    return [(name, without_space(value), comment.startswith(' required'))
            for name, value, comment in re.findall(r'^\s*\.(\w+) = (.*?),\s*(?://(.*))?$', block, re.M)]


def check_options():
    header = (root / 'composer' / 'trainer' / 'trainer.h').read_text()
    for struct in STRUCTS:
        blocks = [text for text in blocks_of('trainer.md') if re.match(rf'{struct} \w+{{', text)]
        if len(blocks) != 1:
            yield f'docs/reference/trainer.md: has {len(blocks)} blocks of {struct}, expected 1'
            continue
        fields, listed = fields_of(header, struct), listed_in(blocks[0])
        names, listed_names = [name for name, _ in fields], [name for name, _, _ in listed]
        if names != listed_names:
            at = next((i for i, pair in enumerate(zip(names, listed_names)) if pair[0] != pair[1]),
                      min(len(names), len(listed_names)))
            here, there = ((some[at:at + 1] or ['nothing'])[0] for some in (listed_names, names))
            yield f'docs/reference/trainer.md: field {at + 1} of {struct} is {here}, and {there} in the header'
            continue
        for (name, default), (_, value, required) in zip(fields, listed):
            if value != default and not (required and default == '{}'):
                yield f'docs/reference/trainer.md: {struct}::{name} is {value}, and {default} in the header'


def members_of(header, kind, name):
    """(type, name) of each public field, and (None, name) of each public function, in order."""
    body = re.search(rf'^{kind} (?:COMPOSER_EXPORT )?{name} {{\n(.*?)^}};', header, re.S | re.M).group(1)
    body = re.split(r'^ (?:protected|private):', body, flags=re.M)[0]
    for line in re.sub(r'^ public:', '', without_comments(body), flags=re.M).split('\n  ')[1:]:
        declared = ' '.join(line.removeprefix('COMPOSER_EXPORT ').split())
        if line.startswith(' ') or re.match(r'using|friend|.*\boperator\b', declared):
            continue
        function = re.match(r'[^=({]*?(\w+)\(', declared)
        if function:
            yield None, function[1]
        elif field := re.match(r'(\w[\w:]*(?:<.*>)?) (\w.*);', declared):
            for part in field[2].split(','):
                yield field[1], re.match(r'\w+', part.strip())[0]


def check_state():
    page = (reference / 'state.md').read_text()
    for header, kind, name in (('state.h', 'struct', 'State'), ('time.h', 'struct', 'Timestamp'), ('state.h', 'struct', 'Reported'),
                               ('tensors.h', 'class', 'Tensors')):
        section = page.partition(f'\n## {name}\n')[2].partition('\n## ')[0]
        rows = [(cells[0], cells[1]) for cells in re.findall(r'^\| (.*?) \| (.*?) \|', section, re.M)]
        listed = [(without_space(type_), field) for cell, type_ in rows for field in re.findall(r'`(\w+)', cell)]
        for type_, field in members_of((root / 'composer' / 'core' / header).read_text(), kind, name):
            if type_ is None and not re.search(rf'`{field}[(`]', section):
                yield f'docs/reference/state.md: {name}::{field}() is not there'
            elif type_ and (without_space(f'`{type_}`'), field) not in listed:
                yield f'docs/reference/state.md: {name}::{field} has no row, or not the type {type_}'


def check_optimizers():
    headers = '\n'.join(path.read_text() for path in sorted((root / 'composer' / 'optim').glob('*.h')))
    rows = set(re.findall(r'^\| `optim::(\w+)`', (reference / 'optimizers.md').read_text(), re.M))
    tried = set(re.findall(r'^ *(?:return \{)?\{"(\w+)", \1\(', (root / 'tests' / 'optim' / 'every_optimizer.h').read_text(), re.M))
    for name in re.findall(r'^COMPOSER_EXPORT AnyOptimizer (\w+)\(', headers, re.M):
        if name not in rows:
            yield f'docs/reference/optimizers.md: optim::{name} is in no row'
        if name not in tried:
            yield f'tests/optim/every_optimizer.h: {name} is not in the list'


def check_headers():
    for module in ('callbacks', 'algorithms', 'loggers'):
        for page in sorted((reference / module).glob('*.md')):
            if page.stem in ('README', 'writing'):
                continue
            named = re.findall(r'^Header: `(.*)`\.$', page.read_text(), re.M)
            if len(named) != 1 or not (root / named[0]).exists():
                yield f'docs/reference/{module}/{page.name}: must name its header once, as in "Header: `composer/...h`."; has {named}'


def check_lists():
    for listed in sorted(reference.glob('*/README.md')):
        rows = re.findall(r'^\| \[([^\]]+)\]\((\w+\.md)\) \|', listed.read_text(), re.M)
        for page in sorted(listed.parent.glob('*.md')):
            row = (page.read_text().partition('\n')[0].removeprefix('# '), page.name)
            if page.stem not in ('README', 'writing') and rows.count(row) != 1:
                yield f'docs/reference/{listed.parent.name}/README.md: must have one row of [{row[0]}]({row[1]}), has {rows.count(row)}'


def check_indices():
    for folder in (docs / 'guides', docs / 'concepts', reference):
        index = (folder / 'README.md').read_text()
        for page in [*folder.glob('*.md'), *folder.glob('data/*.md'), *folder.glob('*/README.md')]:
            if page != folder / 'README.md' and f']({page.relative_to(folder)})' not in index:
                yield f'{(folder / "README.md").relative_to(root)}: must list {page.relative_to(folder)}'


MARKS = ('blocks:', 'continues', 'in:', 'member of:', 'file:', 'run', 'run:', 'run on a new machine', 'prints', 'prints: about', 'options:', 'end of options', 'old names:',
         'end of old names')
FENCES = ('cpp', 'sh', 'bash', 'text', 'cmake', 'awk', 'python', 'json', 'diff', '')


def check_marks():
    for page in docs.rglob('*.md'):
        text = page.read_text()
        for mark in re.findall(r'<!-- (.*?) *(?:-->|\n)', text):
            if 'benchmarks/' not in mark and not any(mark == known or known.endswith(':') and mark.startswith(known) for known in MARKS):
                yield f'{page.relative_to(root)}: <!-- {mark} --> is no mark; there are {", ".join(MARKS)}'
        opens = False
        for line in text.split('\n'):
            fence = re.match(r'(\s*)(```+|~~~+)(.*)', line)
            if fence and (opens := not opens) and (fence[1] or fence[3] not in FENCES):
                yield f'{page.relative_to(root)}: the block "{line.strip()}" must begin its line, with one of {", ".join(FENCES[:-1])}'


def anchors_of(page):
    headings = re.findall(r'^#+ (.*)$', re.sub(r'^```.*?^```', '', page.read_text(), flags=re.S | re.M), re.M)
    return {anchor_of(heading) for heading in headings}


def check_links():
    for page in [*root.glob('*.md'), *docs.rglob('*.md')]:
        for link in re.findall(r'\]\(([^)\s]+)\)', page.read_text()):
            if '://' in link:
                continue
            name, _, anchor = link.partition('#')
            target = (page.parent / name).resolve() if name else page
            if not target.is_file():
                yield f'{page.relative_to(root)}: {link} is no file'
            elif anchor and anchor not in anchors_of(target):
                yield f'{page.relative_to(root)}: {link}: there is no such heading'


def check_packages():
    script = (root / 'scripts' / 'lib.sh').read_text()
    installed = {name for array in ('to_build', 'to_test')
                 for name in re.search(rf'^{array}=\((.*?)\)', script, re.S | re.M).group(1).split()}
    known = set(re.findall(r'\[([\w+-]+)\]=', re.search(r'^declare -A seen_by=\((.*?)^\)', script, re.S | re.M).group(1)))
    section = (reference / 'building.md').read_text().partition('\n## Packages\n')[2].partition('\n## ')[0]
    listed = set(re.findall(r'^\| `([^`]+)` \|', section, re.M))
    for name in sorted(installed - listed):
        yield f'docs/reference/building.md: does not list {name}, which scripts/lib.sh installs'
    for name in sorted(listed - known):
        yield f'docs/reference/building.md: lists {name}, which scripts/lib.sh does not know'


errors = [*check_options(), *check_state(), *check_optimizers(), *check_headers(), *check_links(), *check_packages(), *check_lists(), *check_indices(), *check_marks()]
if errors:
    sys.exit('pages: ' + '\npages: '.join(errors))
