#!/usr/bin/env python3
"""What does .tune choose while other programs use the processors?

Trains the small network of `scripts/train --fast` three times, with a cache of its own each time: on the machine as it
is, with a neighbour on every processor for the first seconds, and with one all the time. Prints the choices, whether
they were kept, and the speed. It is no test: what is fastest depends on the machine."""
import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def burn(until):
    while time.monotonic() < until:
        sum(range(1000))


def train(program, arguments, seconds):
    """The choices and the closing table, with a neighbour on every processor for so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        neighbours = [multiprocessing.Process(target=burn, args=(time.monotonic() + seconds,), daemon=True)
                      for _ in range(os.cpu_count() if seconds else 0)]
        for neighbour in neighbours:
            neighbour.start()
        environment = dict(os.environ, XDG_CACHE_HOME=folder)
        out = pathlib.Path(folder) / 'result.json'
        command = [program, '--fast', '--quiet', '--json', str(out), '--out', folder + '/out', *arguments]
        said = subprocess.run(command, env=environment, capture_output=True, text=True)
        for neighbour in neighbours:
            neighbour.terminate()
        if said.returncode != 0:
            sys.exit(f'{" ".join(command)} ended with {said.returncode}: {said.stderr}')
        kept = (pathlib.Path(folder) / 'libcomposer' / 'tune.json').exists()
        lines = [line.strip() for line in (said.stdout + said.stderr).splitlines() if 'tune' in line]
        return lines, kept, json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program', nargs='?', default='build/release/bin/train_fashion_mnist')
    parser.add_argument('--busy', type=float, default=20, metavar='SECONDS', help='of the neighbour that ends (20)')
    parser.add_argument('--epochs', default='3')
    options = parser.parse_args()
    for what, seconds in (('as it is', 0), (f'busy for {options.busy:g} s', options.busy), ('busy all the time', 1e6)):
        lines, kept, result = train(options.program, ['--epochs', options.epochs], seconds)
        print(f'{what}: {result["precision"]}, {result["threads"]} threads at the end, '
              f'{result["samples_per_second"]:.0f} samples/s, {result["seconds"]:.0f} s, kept: {"yes" if kept else "no"}')
        for line in lines:
            print('   ', line)


if __name__ == '__main__':
    main()
