#!/usr/bin/env python3
"""What scripts/website.py prepares: every page is in the navigation once, links lead to pages and headings, and every installed header is
in the reference. The site itself is built only where MkDocs and its theme Material are installed."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import website  # noqa: E402

THEME = pathlib.Path("/usr/share/mkdocs/themes/material/mkdocs_theme.yml")


def check(site, folder):
    places = list(website.listed(site.navigation()))
    yield from (f"{place} is in the navigation {places.count(place)} times" for place in sorted(set(places)) if places.count(place) != 1)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.cpp"), *(ROOT / "examples").glob("*.h")]
    for path in pages:
        if website.place_of(str(path.relative_to(ROOT))) not in places:
            yield f"{path.relative_to(ROOT)} is not in the navigation"
    for place in set(places) ^ set(site.pages):
        yield f"{place} is in the navigation and no page, or the reverse"
    anchors = {place: set(re.findall(r"^#+ .*\{#(.*)\}$", text, re.M)) for place, text in site.pages.items()}
    for place, text in site.pages.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", website.FENCE.sub("", text)):
            name, _, anchor = link.partition("#")
            file = (folder / place).parent / name if name else folder / place
            to = str(file.resolve().relative_to(folder.resolve())) if "://" not in link else None
            if to and not file.is_file():
                yield f"{place}: {link} leads nowhere"
            elif to and anchor and anchor not in anchors[to]:
                yield f"{place}: there is no heading {link}"
    names = site.pages["reference/api/index.md"]
    for header in website.headers():
        place, _, anchor = website.place_of(header).partition("#")
        if anchor not in anchors[place]:
            yield f"{header} is not in the reference"
    for name, header in {"EarlyStopper": "callbacks/early_stopper.h", "Trainer": "trainer/trainer.h", "Event": "core/event.h", "adamw": "optim/adam.h"}.items():
        if not re.search(rf"^\| \[`{name}`\].*`composer/{header}` \|$", names, re.M):
            yield f"the index does not say that {name} is in {header}"
    for place, text in site.pages.items():
        if place.startswith("reference/api/") and re.search(r"^ *(private:|#include \")|COMPOSER_EXPORT", text, re.M):
            yield f"{place} shows private parts or includes"


def main():
    site = website.made()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        site.write(folder)
        wrong = list(check(site, folder))
    if not wrong and shutil.which("mkdocs") and THEME.exists():
        built = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True)
        wrong += [built.stderr] if built.returncode else []
    print("\n".join(wrong) or f"website: {len(site.pages)} pages")
    sys.exit(bool(wrong))


main()
