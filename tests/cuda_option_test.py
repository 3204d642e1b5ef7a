#!/usr/bin/env python3
"""What CMake says where libtorch has no CUDA, or CUDA's headers are missing: with COMPOSER_CUDA=ON an error that names them. And what
find_package(composer) says, which takes what the installed library has and leaves COMPOSER_CUDA to the project."""
import pathlib
import subprocess
import sys
import tempfile

GENERATOR = sys.argv[1] if len(sys.argv) > 1 else "Ninja"
ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
foreach(places CMAKE_SYSTEM_PATH SYSTEM_ENVIRONMENT_PATH CMAKE_ENVIRONMENT_PATH)
  set(CMAKE_FIND_USE_${{places}} OFF) # headers of this machine
endforeach()
{find}
if(TARGET libtorch::cuda)
  message(STATUS "there is libtorch::cuda")
endif()
message(STATUS "COMPOSER_CUDA is <${{COMPOSER_CUDA}}>")
"""
VERSION = "".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in (("MAJOR", 2), ("MINOR", 99), ("PATCH", 0)))
HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h")


def library(path, needed=None):
    """A shared library without anything in it, which may need another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", path, "-nostdlib", f"-Wl,-soname,{path.name}"]
    if needed:
        command += ["-x", "none", "-Wl,--no-as-needed", needed]
    subprocess.run(command, check=True)


def libtorch(folder, cuda, headers=()):
    """One for a CUDA that does not exist, whose headers are beside it."""
    torch = folder / "torch"
    for name in ("libtorch_cpu.so", "libc10.so"):
        library(torch / "lib" / name)
    version = torch / "include/torch/headeronly/version.h"
    version.parent.mkdir(parents=True)
    version.write_text(VERSION)
    if cuda:
        library(torch / "lib/libcudart.so.19")
        library(torch / "lib/libc10_cuda.so", torch / "lib/libcudart.so.19")
        library(torch / "lib/libtorch_cuda.so")
    for name in headers:
        header = folder / "nvidia/cu19/include" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#define CUDART_VERSION 19000\n")
    return torch


def install(folder, has_cuda):
    """What an installed library has of CMake's files."""
    package = folder / "lib/cmake/composer"
    package.mkdir(parents=True)
    text = (ROOT / "cmake/composerConfig.cmake.in").read_text()
    for name, value in (("PACKAGE_INIT", "macro(check_required_components)\nendmacro()"), ("LIBTORCH_VERSION", "2.99.0"),
                        ("LIBTORCH_ROOT", ""), ("BUILD_SHARED_LIBS", "ON"), ("COMPOSER_HAS_CUDA", has_cuda)):
        text = text.replace(f"@{name}@", value)
    (package / "composerConfig.cmake").write_text(text)
    (package / "composerTargets.cmake").write_text("")
    (package / "LibTorch.cmake").write_text((ROOT / "cmake/LibTorch.cmake").read_text())


def configured(cuda, headers, *options, installed=None):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "user").mkdir()
        find = f'include("{ROOT}/cmake/LibTorch.cmake")'
        if installed:
            install(folder / "installed", installed)
            find = f'find_package(composer CONFIG REQUIRED PATHS "{folder}/installed" NO_DEFAULT_PATH)'
        (folder / "user/CMakeLists.txt").write_text(PROJECT.format(find=find))
        done = subprocess.run(["cmake", "-S", folder / "user", "-B", folder / "build", "-G", GENERATOR,
                               f"-DTORCH_DIR={libtorch(folder, cuda, headers)}", *options],
                              capture_output=True, text=True, timeout=120)
        return done.returncode, " ".join((done.stdout + done.stderr).split())


def main():
    wrong = []
    rows = [
        # libtorch has CUDA, headers that are there, options, whether it configures, what it says, what it does not say
        (False, (), [], True, ["libtorch has no CUDA: building for the CPU alone"], ["Warning"]),
        (False, (), ["-DCOMPOSER_CUDA=ON"], False, ["COMPOSER_CUDA=ON: this libtorch has no CUDA", "libtorch_cuda.so"], []),
        (True, (), [], True, ["CMake Warning", "headers of CUDA 19", *HEADERS, "nvidia-cuda-crt of PyPI", "cuda_graph"],
         ["there is libtorch::cuda"]),
        (True, HEADERS[1:], [], True, ["cuda_runtime_api.h (of nvidia-cuda-runtime"], ["cusparse.h (of"]),
        (True, HEADERS[:4], ["-DCOMPOSER_CUDA=on"], False, ["CMake Error", "cusolverDn.h (of nvidia-cusolver of PyPI"], ["cusparse.h (of"]),
        (True, (), ["-DCOMPOSER_CUDA=OFF"], True, ["COMPOSER_CUDA=OFF: building for the CPU alone"], ["Warning", "libtorch::cuda"]),
        (True, HEADERS, ["-DCOMPOSER_CUDA=ON"], True, ["there is libtorch::cuda"], ["alone"]),
        (True, HEADERS, [], True, ["there is libtorch::cuda"], ["alone"]),
        (True, HEADERS, ["-DCOMPOSER_CUDA=OFF"], True, ["for the CPU alone"], ["there is libtorch::cuda"]),
        (True, HEADERS, ["-DCOMPOSER_CUDA=maybe"], False, ["COMPOSER_CUDA=maybe is none of AUTO, ON and OFF"], []),
    ]
    installed = [  # the library has CUDA, and then as above
        ("OFF", False, (), [], True, ["COMPOSER_CUDA is <>"], ["Warning", "alone"]),
        ("OFF", True, (), [], True, ["COMPOSER_CUDA is <>"], ["Warning", "alone", "libtorch::cuda"]),
        ("OFF", True, HEADERS, ["-DCOMPOSER_CUDA=AUTO"], True, ["COMPOSER_CUDA is <AUTO>"], ["libtorch::cuda"]),
        ("OFF", True, HEADERS, ["-DCOMPOSER_CUDA=on"], False, ["COMPOSER_CUDA=on, but this libcomposer was built for the CPU alone"], []),
        ("ON", True, HEADERS, ["-DCOMPOSER_CUDA=OFF"], True, ["COMPOSER_CUDA is <OFF>", "there is libtorch::cuda"], ["alone"]),
        ("ON", True, HEADERS[1:], [], False, ["cuda_runtime_api.h (of nvidia-cuda-runtime"], ["Warning"]),
        ("ON", False, (), [], False, ["this libtorch has no CUDA"], []),
    ]
    rows = [(None, *row) for row in rows] + installed
    for library_has, cuda, headers, options, passes, said, not_said in rows:
        code, text = configured(cuda, headers, *options, installed=library_has)
        if (code == 0) != passes or any(part not in text for part in said) or any(part in text for part in not_said):
            wrong.append(f"installed {library_has}, CUDA {cuda}, {len(headers)} headers, {options}: exit status {code}\n{text[-1500:]}")
    print("\n".join(wrong) or f"COMPOSER_CUDA: {len(rows)} cases are as they must be")
    sys.exit(bool(wrong))


main()
