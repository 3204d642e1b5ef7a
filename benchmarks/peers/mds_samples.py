#!/usr/bin/env python3
"""Samples per second of one data set in shards, read by mosaicml-streaming and by libcomposer in turns.

    python3 benchmarks/peers/mds_samples.py build/release/bin/stream_samples [--samples N] [--rounds N]

It needs mosaicml-streaming (PyPI). Batches of 64 samples of 512 int32 each, second epoch of each process, all in the page cache.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader


def write(folder, samples):
    random = np.random.default_rng(1)
    with MDSWriter(out=folder, columns={"tokens": "ndarray:int32", "text": "str"}, size_limit=1 << 23) as out:
        for i in range(samples):
            out.write({"tokens": random.integers(0, 50000, 512, dtype=np.int32), "text": f"document {i} " * 20})


class Tokens(StreamingDataset):
    """Only the column that is read by the other contender; decoding the rest is a part of the format's cost in Python."""

    def __getitem__(self, index):
        return {"tokens": super().__getitem__(index)["tokens"].copy()}


def theirs(folder, workers, shuffle):
    data = Tokens(local=folder, batch_size=64, shuffle=shuffle, shuffle_seed=1, num_canonical_nodes=1)
    loader = DataLoader(data, batch_size=64, num_workers=workers, persistent_workers=workers > 0)
    for epoch in range(2):
        begin = time.perf_counter()
        count = sum(len(batch["tokens"]) for batch in loader)
        took = time.perf_counter() - begin
    return count / took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--samples", type=int, default=50000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # folder, workers, shuffle: one measurement in its own process
    options = parser.parse_args()
    if options.one:
        folder, workers, shuffle = options.one
        print(int(theirs(folder, int(workers), shuffle == "1")))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(folder, options.samples)
        for shuffle in "01":
            for workers in "012":
                rates = {"streaming": [], "libcomposer": []}
                for _ in range(options.rounds):
                    for name, command in (("streaming", [sys.executable, __file__, "-", "--one", folder, workers, shuffle]),
                                          ("libcomposer", [options.program, folder, workers, shuffle])):
                        rates[name].append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]))
                a, b = (statistics.median(rates[name]) for name in rates)
                print(f"shuffle {shuffle}, {workers} workers: streaming {a:8.0f}/s, libcomposer {b:8.0f}/s, ratio {b / a:.1f}", flush=True)


if __name__ == "__main__":
    main()
