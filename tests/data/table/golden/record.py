#!/usr/bin/env python3
"""Writes arrays.npz and compressed.npz with NumPy: the numbers 0 to 23 as an array [2, 3, 4] of each type and order, and
arrays of other shapes. npy_test.cpp knows what is in them."""
import pathlib

import numpy as np

here = pathlib.Path(__file__).parent
numbers = np.arange(24).reshape(2, 3, 4)
arrays = {}
for kind in ['i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'c8', 'c16', 'b1']:
    for order in ['<', '>']:
        for layout in ['C', 'F']:
            name = f'{kind}_{"big" if order == ">" else "little"}_{layout}'
            arrays[name] = np.asarray(numbers.astype(np.dtype(order + kind)), order=layout)
arrays['scalar'] = np.float64(2.5)
arrays['empty'] = np.zeros((0, 3), np.float32)
arrays['row'] = np.arange(5, dtype=np.int64)
np.savez(here / 'arrays.npz', **arrays)
np.savez_compressed(here / 'compressed.npz', zeros=np.zeros((500, 200), np.float32), row=arrays['row'])
