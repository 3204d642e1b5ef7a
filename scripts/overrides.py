#!/usr/bin/env python3
"""Fails if a virtual method of Callback, Algorithm or LoggerDestination is not in the list of composer/core/overrides.h,
or not on the page about writing one.

The list is what the compiler compares with the methods of a plug-in's class: a method that is not in it can be hidden
by one with another signature, which is then never called."""
import argparse
import pathlib
import re
import sys

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
CORE = pathlib.Path(__file__).resolve().parent.parent / 'composer' / 'core'
HEADERS = {'Callback': 'callback.h', 'Algorithm': 'algorithm.h', 'LoggerDestination': 'logger.h'}
PAGES = {'Callback': 'callbacks', 'Algorithm': 'algorithms', 'LoggerDestination': 'loggers'}
ELSEWHERE = {('Callback', 'run_event')}  # checked in events_of(), as are the methods of events
NOT_METHODS = {'method'}  # the parameter of COMPOSER_X, which stands for the methods of events


def virtuals(text, name):
    """The names of the virtual methods in the body of a class, which ends with "};" at the start of a line."""
    body = re.search(rf'^class COMPOSER_EXPORT {name}\b.*?^}};', text, re.S | re.M)
    if not body:
        sys.exit(f'{name} is not in its header any more: adapt scripts/overrides.py')
    code = re.sub(r'//[^\n]*', '', body.group())
    return set(re.findall(r'\bvirtual\s[^;{(]*?(\w+)\(', code)) - {name} - NOT_METHODS


listed = set(re.findall(r'^ *COMPOSER_X\((\w+), (\w+)\)$', (CORE / 'overrides.h').read_text(), re.M)) | ELSEWHERE
declared = {(name, method) for name, header in HEADERS.items() for method in virtuals((CORE / header).read_text(), name)}
for name, method in sorted(declared - listed):
    print(f'{name}::{method} is not in check_overrides() of composer/core/overrides.h')
for name, method in sorted(listed - declared):
    print(f'composer/core/overrides.h checks {name}::{method}, which is not virtual there')
untold = []
for name, method in sorted(declared - ELSEWHERE):
    page = CORE.parent.parent / 'docs' / 'reference' / PAGES[name] / 'writing.md'
    if not re.search(rf'\b{method}\b', page.read_text()):
        untold.append(method)
        print(f'{name}::{method} is not on {page.relative_to(CORE.parent.parent)}')
sys.exit(declared != listed or bool(untold))
