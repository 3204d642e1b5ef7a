#!/usr/bin/env python3
"""Fails if a module of composer/ depends on one that it must not depend on.

A module includes itself and those it may know; headers do not include each other in a circle; headers include the
standard library, narrow libtorch headers and ours; torch/nn reaches only those who define or replace modules, and
ATen/ATen.h only them; sources that are slow to compile for libtorch's headers are listed after HEAVY, and no others.
Headers that a CMakeLists.txt names are installed, so they include no header of ours that is
not, and no third party's. What RESERVED lists, such as OpenMP and numbers in the program's locale, is left to one file.
"""
import argparse
import functools
import pathlib
import re
import sys

GROUND = ["core", "util"]  # what every module may know
MAY_KNOW = {
    "util": ["core"],  # its errors and its vocabulary; no circle comes of it, which is checked as well
    "core": ["util"],
    "net": GROUND,
    "device": GROUND,
    "kernels": GROUND,
    "metrics": GROUND,
    "data": GROUND + ["net", "device", "formats", "metrics"],
    "formats": GROUND,
    "optim": GROUND + ["formats", "metrics", "data"],
    "surgery": GROUND,
    "models": GROUND + ["metrics", "data", "optim", "surgery"],
    "predict": GROUND + ["device", "formats", "metrics", "data", "optim", "surgery", "models", "checkpoint"],
    "checkpoint": GROUND + ["device", "formats"],
    "dist": GROUND + ["device"],
    "step": GROUND + ["device", "kernels", "formats", "metrics", "data", "optim", "surgery", "dist"],
    "remote": GROUND + ["net", "formats", "checkpoint"],
    "tuning": GROUND + ["device", "kernels", "metrics", "data", "optim", "step"],
    "trainer": GROUND + ["net", "device", "kernels", "formats", "metrics", "data", "optim", "models", "checkpoint", "remote", "step", "tuning", "dist"],
    "callbacks": GROUND + ["device", "formats", "metrics", "data", "optim", "surgery", "models", "predict", "checkpoint", "step", "dist", "profiler"],
    "algorithms": GROUND + ["net", "formats", "metrics", "data", "optim", "surgery", "dist"],
    "loggers": GROUND + ["metrics", "dist", "net"],
    "profiler": GROUND,
    "cli": None,  # the command line knows everybody
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
STANDARD = re.compile(r"[a-z_0-9]+")
LIBTORCH = re.compile(r"(ATen|c10|torch)/")
# What only some files may contain, and why: those whose names begin so, or none.
RESERVED = [
    (re.compile(r"^(?!\s*//).*?(\bat::parallel_(?:for|reduce)\b|#\s*pragma\s+omp\b|<omp\.h>)", re.M), None,
     "does nothing, or runs in one thread, without -fopenmp: call parallel_for (composer/util/parallel.h)"),
    (re.compile(r"^(?!\s*//).*?\b(std::[io]?stringstream|v?s?n?printf|std::sto[dfl]d?|strto(?:d|f|ld)|std::put_time|std::get_time)"
                r"\b\s*[({ ]", re.M), "composer/util/text.",
     "depends on the program's locale, as in 1,234,567 and 0,5: see composer/util/text.h, and <charconv>"),
    (re.compile(r"^(?!\s*//).*?\b(to(?:lower|upper)|is(?:alnum|alpha|digit|x?digit|space|upper|lower|punct|print|graph|cntrl)|"
                r"strn?casecmp|strcoll|strptime)\(", re.M), None,
     "depends on the program's locale: see composer/util/letters.h"),
    (re.compile(r"\w*[Jj]son::(?:parse|accept)\("), "composer/util/json.h",
     "has no limit of depth: util::parse_json (composer/util/json.h)"),
    (re.compile(r"^(?!\s*//).*?(\bflock\(|\blockf\(|\bF_(?:OFD_)?SETLK)", re.M), "composer/util/own_descriptor.cpp",
     "locks for forked children as well: use util::OwnDescriptor (composer/util/own_descriptor.h)"),
    (re.compile(r"^\s*#\s*include\s*<regex>", re.M), "composer/util/pattern.cpp",
     "takes a compiler three seconds: use util::Pattern (composer/util/pattern.h)"),
    (re.compile(r"^(?!\s*//).*?(\b(?:is_cuda|kCUDA|hasCUDA|getCUDAHooks)\b|\b(?:DeviceType|Float32Backend|ActivityType)::CUDA\b|"
                r"\b(?:c10|ATen|torch/csrc)/cuda\b)", re.M), "composer/device/",
     "is particular to one device: ask device_support() (composer/device/device_support.h)"),
    (re.compile(r"^(?!\s*//).*?\b(?:secure_)?getenv\(", re.M), "composer/util/environment.cpp",
     "reads the environment: see composer/util/environment.h"),
    (re.compile(r"^(?!\s*//).*?\bmk(?:o?s|d)temps?\(", re.M), "composer/util/temporary.cpp",
     "makes temporary files: see composer/util/temporary.h"),
]
NN = re.compile(r"torch/(nn/|nn\.h$|torch\.h$|all\.h$)")  # 10 s of a compiler each time, where core/engine.h takes 2
# These lead to all operators as well.
HEAVY = re.compile(r"torch/(nn/|nn\.h$|torch\.h$|all\.h$|serialize|optim/(?!optimizer\.h)|csrc/autograd/functions/|"
                   r"csrc/distributed/c10d/(?!Store|TCPStore|PrefixStore|Types))|ATen/autocast_mode\.h")
ALL_OPERATORS = {"ATen/ATen.h", "ATen/Functions.h", "torch/types.h"}  # 6 s; ATen/ops/NAME.h are small
DEFINES_MODULE = re.compile(r"^(?:class|struct)[^;{]*:\s*(?:public\s+)?(?:torch::nn::|Model\b)", re.M)
TOO_WIDE = {"torch/torch.h", "torch/all.h", "torch/nn.h", "torch/extension.h"}

root = pathlib.Path(__file__).resolve().parent.parent
argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
wrong = []
graph = {}  # file: our headers that it includes
foreign = {}  # file: the others
defines_module = set()
heavy = set()  # sources that are listed so
public = set()  # headers that are installed


def names_in(listing):
    return {pathlib.PurePath(word).name for word in re.findall(r"[\w./-]+", listing.read_text())}


def listing_of(folder):
    """Its CMakeLists.txt, or that of the folder above."""
    return folder / "CMakeLists.txt" if (folder / "CMakeLists.txt").exists() else listing_of(folder.parent)


def check_header(name, quote, path):
    if path in TOO_WIDE:
        wrong.append(f"{name}: <{path}> is too wide for a header: include the narrow ones")
    elif quote == "<" and not (STANDARD.fullmatch(path) or LIBTORCH.match(path)):
        wrong.append(f"{name}: <{path}> is neither the standard library's nor libtorch's: include it in a source")


def circle(at, trail):
    if at in trail:
        return trail[trail.index(at):] + [at]
    if at in done:
        return None
    for included in graph.get(at, []):
        if found := circle(included, trail + [at]):
            return found
    done.add(at)
    return None


@functools.cache
def reaches(name, which):
    """Whether its includes lead to a header of libtorch's whose path matches."""
    return any(map(which.match, foreign.get(name, []))) or any(reaches(path, which) for path in graph.get(name, []))


def check_cost(name):
    """Who defines or replaces modules pays for torch/nn; who uses a model includes core/model_access.h instead."""
    module = name.split("/")[1]
    knows_surgery = module == "surgery" or "surgery" in (MAY_KNOW[module] or [])
    if name.endswith(".h"):
        allowed = name in defines_module
        through = [path for path in graph[name] if reaches(path, NN)] + list(filter(NN.match, foreign[name]))
        allowed |= knows_surgery and all(path.startswith(("composer/surgery/", "composer/models/")) for path in through)
    else:
        allowed = knows_surgery or module == "core"
    if reaches(name, NN) and not allowed:
        wrong.append(f"{name}: its includes lead to torch/nn, and it neither defines nor replaces modules: "
                     "use composer/core/model_access.h")
    if name.endswith(".cpp") and name.count("/") == 2 and MAY_KNOW[module] is not None and reaches(name, HEAVY) != (name in heavy):
        wrong.append(f"{name}: its includes lead to all operators of libtorch: list it after HEAVY" if name not in heavy else
                     f"{name}: its includes do not lead to all operators of libtorch: list it after SOURCES")
    for path in ALL_OPERATORS.intersection(foreign[name]):
        if name.endswith(".h") or not reaches(name, NN):
            wrong.append(f"{name}: <{path}> has all operators: include <ATen/core/Tensor.h> and the <ATen/ops/NAME.h> of those used")


everything = sorted(path for path in (root / "composer").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
files = [path for path in everything if path.suffix in (".h", ".cpp")]
for file in set(everything) - set(files):
    if file.name != "CMakeLists.txt" and "gloo_shim" not in file.parts:
        wrong.append(f"{file.relative_to(root)}: neither a header (.h) nor a source (.cpp)")
for file in files:
    name = str(file.relative_to(root))
    text = file.read_text()
    for pattern, place, why in RESERVED:
        if place is None or not name.startswith(place):
            wrong.extend(f"{name}: {found.strip()} {why}" for found in pattern.findall(text))
    includes = INCLUDE.findall(text)
    for quote, path in includes:
        if quote == '"' and "gloo_shim" not in file.parts and not ((root / path).is_file() and path.startswith("composer/")):
            wrong.append(f'{name}: "{path}" is not the path of a file of composer/ from the root of the tree')
    graph[name] = [path for _, path in includes if path.startswith("composer/")]
    foreign[name] = [path for _, path in includes if not path.startswith("composer/")]
    if DEFINES_MODULE.search(text):
        defines_module.add(name)
    if len(file.relative_to(root).parts) < 3:
        continue  # composer/pch.h and its kind stand above the modules
    module = file.relative_to(root).parts[1]
    if module not in MAY_KNOW:
        wrong.append(f"{name}: add the module {module} and its allowed dependencies to MAY_KNOW in scripts/layers.py")
        continue
    for path in graph[name]:
        other = path.split("/")[1]
        if MAY_KNOW[module] is not None and other != module and other not in MAY_KNOW[module]:
            wrong.append(f"{name}: {module} must not depend on {other} ({path})")
    named = file.name in names_in(listing_of(file.parent))
    if file.suffix == ".h" and named:
        public.add(name)
        for quote, path in includes:
            check_header(name, quote, path)

for folder in ("tests", "examples", "benchmarks"):
    for file in sorted(path for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp")):
        for quote, path in INCLUDE.findall(file.read_text()):
            if quote == '"' and path.startswith(("composer/", "tests/", "benchmarks/")) and not (root / path).is_file():
                wrong.append(f'{file.relative_to(root)}: "{path}" is no file')

for name in public:
    for included in graph[name]:
        if included in graph and included not in public:
            wrong.append(f"{name}: is installed, and includes {included}, which is not (composer/*/CMakeLists.txt)")

done = set()
for name in graph:
    if found := circle(name, []):
        sys.exit("a circle of includes: " + " -> ".join(found))

for listing in (root / "composer").rglob("CMakeLists.txt"):
    for block in re.findall(r"\n  HEAVY\n((?:    .*\n)+)", listing.read_text()):
        heavy.update(f"{listing.parent.relative_to(root)}/{source}" for source in block.split())

for name in graph:
    if name.count("/") > 1 and name.split("/")[1] in MAY_KNOW:
        check_cost(name)

print("\n".join(wrong) or f"layers: {len(files)} files, every arrow points the right way")
sys.exit(bool(wrong))
