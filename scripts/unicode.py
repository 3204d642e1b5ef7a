#!/usr/bin/env python3
"""Writes composer/data/text/unicode_ranges.h: the letters and numbers of Unicode, as tiktoken's regular expressions know them.

Needs tiktoken (`pip install tiktoken`). Run it when tiktoken follows a newer Unicode."""
import argparse
import pathlib

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
import tiktoken  # noqa: E402

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
OUT = pathlib.Path(__file__).resolve().parent.parent / 'composer/data/text/unicode_ranges.h'


def members(pattern):
    """What a pattern does not match is left out of the tokens, so a vocabulary of bytes gives back what it matches."""
    encoding = tiktoken.Encoding('probe', pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)},
                                 special_tokens={})
    for i in range(0, len(POINTS), 4096):
        text = ''.join(map(chr, POINTS[i:i + 4096]))
        yield from map(ord, bytes(encoding.encode_ordinary(text)).decode())


def lines(name, pattern):
    ranges = []
    for point in members(pattern):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    text, row = [f'inline constexpr Range {name}[] = {{'], '   '
    for first, last in ranges:
        item = f' {{0x{first:x}, 0x{last:x}}},'
        if len(row + item) > 120:
            text.append(row)
            row = '   '
        row += item
    return text + [row, '};']


OUT.write_text('\n'.join([
    '#pragma once', '// Written by scripts/unicode.py.', '#include <cstdint>', '', 'namespace composer::data::detail {', '',
    'struct Range {', '  std::uint32_t first, last;', '};', '',
    '// Code points of the categories L and N of Unicode, in ascending order.', '// clang-format off',
    *lines('kLetters', r'\p{L}'), *lines('kNumbers', r'\p{N}'), '// clang-format on', '',
    '}  // namespace composer::data::detail', '']))
