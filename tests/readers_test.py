#!/usr/bin/env python3
"""What CMake says of the libraries of optional formats (cmake/Readers.cmake), and what the library does without them: it is configured
without all, and without each; the sources that ask for one compile; and a file that needs one is an error that names the package."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

GENERATOR, TORCH, CXX = sys.argv[1:4]
ROOT = pathlib.Path(__file__).resolve().parent.parent
READERS = re.findall(r'^  composer_reader\((\w+) .*PACKAGE (\S+) READS "([^"]+)"', (ROOT / "cmake/Readers.cmake").read_text(), re.M)
IMAGES = """
#include <cstdio>
{includes}
int main() {{
  using namespace composer;
  const std::string files[] = {{"\\xff\\xd8\\xff", "GIF89a"}};
  for (const std::string& file : files) try {{
      data::detail::decode_image({{{{reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}}, "x"}}, {{.max_pixels = 9}}, {{}});
    }} catch (const ConfigError& error) {{
      std::puts(error.what());
    }}
}}
"""


def configured(folder, *options):
    """What CMake says, in one line."""
    done = subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", GENERATOR, f"-DTORCH_DIR={TORCH}", f"-DCMAKE_CXX_COMPILER={CXX}",
                           "-DCOMPOSER_CLI=OFF", *options], capture_output=True, text=True, timeout=300)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def without(*names):
    return [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}={'ON' if name in names else 'OFF'}" for name, _, _ in READERS]


def compile_asking(folder):
    """Compiles the sources that ask for a library. Returns what is wrong."""
    asked = [command for command in json.loads((folder / "compile_commands.json").read_text()) if "COMPOSER_HAS_" in command["command"]]
    for command in asked:
        if re.search(r"COMPOSER_HAS_\w+=1", command["command"]):
            yield f"{command['file']} is compiled with a library that was left out"
        source = command["command"] + " -fsyntax-only"
        done = subprocess.run(re.sub(r" -o \S+", "", source), shell=True, cwd=command["directory"], capture_output=True, text=True)
        if done.returncode:
            yield f"{command['file']} does not compile without its library: {done.stderr[:2000]}"
    if len({command["file"] for command in asked}) < len(READERS):
        yield f"only {len(asked)} sources ask for the {len(READERS)} libraries"


def check_images(folder):
    """Files of formats that were left out. Returns what is wrong."""
    sources = [f"composer/data/image/{name}.cpp" for name in ("bmp", "decode", "exif", "gif", "jpeg", "png_reader")]
    (folder / "images.cpp").write_text(IMAGES.format(includes="\n".join(
        f'#include "{source}"' for source in [*sources, "composer/util/text.cpp", "tests/fuzz/errors.cpp"])))
    built = subprocess.run([CXX, "-std=c++20", "-DCOMPOSER_HAS_GIF=0", "-DCOMPOSER_HAS_JPEG=0", f"-I{ROOT}", folder / "images.cpp",
                            "-lpng", "-o", folder / "images"], capture_output=True, text=True)
    if built.returncode:
        yield f"images do not compile: {built.stderr[:2000]}"
        return
    said = subprocess.run([folder / "images"], capture_output=True, text=True).stdout.splitlines()
    if len(said) != 2 or "libjpeg-dev" not in said[0] or "libgif-dev" not in said[1]:
        yield f"images that need a library that was left out are no errors that name its package: {said}"


def check_installed(folder):
    """What find_package(composer) does for a static library that was built with all. Returns what is wrong."""
    package, user = folder / "installed/lib/cmake/composer", folder / "user"
    package.mkdir(parents=True)
    user.mkdir()
    text = (ROOT / "cmake/composerConfig.cmake.in").read_text()
    names = [reader for reader, _, _ in READERS]
    for name, value in (("PACKAGE_INIT", "macro(check_required_components)\nendmacro()"), ("LIBTORCH_VERSION", "0"), ("LIBTORCH_ROOT", ""),
                        ("BUILD_SHARED_LIBS", "OFF"), ("COMPOSER_HAS_CUDA", "OFF"), ("COMPOSER_READERS", ";".join(names))):
        text = text.replace(f"@{name}@", value)
    (package / "composerConfig.cmake").write_text(text)
    (package / "composerTargets.cmake").write_text("")
    for name in ("LibTorch.cmake", "Readers.cmake"):
        (package / name).write_text((ROOT / "cmake" / name).read_text())
    (user / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
                                         "find_package(composer CONFIG REQUIRED)\n"
                                         'message(STATUS "there are ${COMPOSER_READER_TARGETS}")\n')
    for left_out in [(), *((name,) for name in names)]:
        done = subprocess.run(["cmake", "-S", user, "-B", folder / "user_build", "-G", GENERATOR, f"-DTORCH_DIR={TORCH}",
                               f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_PREFIX_PATH={folder / 'installed'}", *without(*left_out)],
                              capture_output=True, text=True, timeout=300)
        said = " ".join((done.stdout + done.stderr).split())
        if left_out and (done.returncode == 0 or f"that was built with {left_out[0]}, which was not found" not in said):
            yield f"an installed library whose {left_out[0]} is missing is no error that says so: {said[-1000:]}"
        if not left_out and (done.returncode or said.partition("there are ")[2].split(" ")[0].count(";") != len(names) - 1):
            yield f"an installed static library does not find its libraries: {said[-1000:]}"


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        build = pathlib.Path(name) / "build"
        names = [reader for reader, _, _ in READERS]
        for left_out in [names, *([one] for one in names)]:
            code, said = configured(build, *without(*left_out))
            line = re.search(r"-- optional formats: (.*?); left out: (.*?) -- ", said)
            if code or not line:
                wrong.append(f"without {left_out}: exit status {code}: {said[-1500:]}")
                continue
            for reader, package, reads in READERS:
                if (f"{reads} ({package})" in line[2]) != (reader in left_out) and (reader in left_out or reads not in line[2]):
                    wrong.append(f"without {left_out}: of {reader} it says: {line[0]}")
            if left_out == names:
                wrong.extend(compile_asking(build))
        wrong.extend(check_images(pathlib.Path(name)))
        wrong.extend(check_installed(pathlib.Path(name)))
        code, said = configured(build, *without(names[0]), f"-DCMAKE_REQUIRE_FIND_PACKAGE_{names[0]}=ON")
        if code == 0:
            wrong.append(f"{names[0]} is both left out and required, and that is no error")
    print("\n".join(wrong) or f"optional formats: {', '.join(names)}: as they must be, without each and without all")
    sys.exit(bool(wrong))


main()
