"""What a reader of measurements must know of the machine and of the software."""
import os
import pathlib
import re
import subprocess


def first(pattern, text, otherwise=""):
    found = re.search(pattern, text, re.M)
    return found.group(1) if found else otherwise


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def said_by(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def caches():
    """As ["L1d 48K", "L2 2048K"]: those that a core has or shares."""
    found = []
    for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = {"Data": "d", "Instruction": "i"}.get(read(folder / "type").strip(), "")
        found.append(f"L{read(folder / 'level').strip()}{kind} {read(folder / 'size').strip()}")
    return found


def of_machine():
    processor = read("/proc/cpuinfo")
    flags = first(r"^flags\s*:\s*(.*)$", processor).split()
    family, model = (first(rf"^{field}\s*:\s*(\d+)", processor, "?") for field in ("cpu family", "model"))
    wanted = ["avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"]
    return dict(
        processor=first(r"^model name\s*:\s*(.*)$", processor, "an unknown processor"),
        family=f"family {family}, model {model}",
        virtual="hypervisor" in flags,
        cores=os.cpu_count(),
        caches=caches(),
        flags=[flag for flag in wanted if flag in flags],
        lacks=[flag for flag in wanted if flag not in flags],
        memory_gib=round(int(first(r"^MemTotal:\s*(\d+)", read("/proc/meminfo"), "0")) / 2**20),
    )


def of_software(root, program):
    cache = read(program.parent.parent / "CMakeCache.txt")
    compiler = first(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, "c++")
    name = "g++" if "Free Software" in said_by(compiler, "--version") else pathlib.Path(compiler).name
    return dict(
        revision=said_by("git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*") or "unknown",
        system=first(r'^PRETTY_NAME="(.*)"', read("/etc/os-release"), "Linux"),
        compiler=f"{name} {said_by(compiler, '-dumpfullversion', '-dumpversion')}",
        wait_policy=os.environ.get("OMP_WAIT_POLICY", "passive"),
    )
