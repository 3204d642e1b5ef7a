#!/usr/bin/env python3
"""Writes composer/composer.h, the one header that includes all installed ones; with --check, fails if it is another.

The headers are those that the CMakeLists.txt of the modules list after HEADERS.
"""
import argparse
import pathlib
import sys

from declarations import installed_headers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--check", action="store_true", help="write nothing")
check = parser.parse_args().check
root = pathlib.Path(__file__).resolve().parent.parent
TEXT = """#pragma once
// All of libcomposer: every header that is installed. It takes a compiler less time than <torch/torch.h>, which it does
// not include; a program that uses torch::nn's modules includes that as well. scripts/umbrella.py writes this file.
"""
text = TEXT + "".join(f'#include "{path}"\n' for path in installed_headers())
file = root / "composer/composer.h"
if not check:
    file.write_text(text)
elif not file.exists() or file.read_text() != text:
    sys.exit("composer/composer.h does not include every installed header: run scripts/umbrella.py")
