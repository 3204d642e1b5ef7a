#!/ usr / bin / env python3
""
    "Writes data sets with mosaicml-streaming (pip install mosaicml-streaming) into the folder golden, which the tests read.

    python3 tests /
    data / mds /
    record_golden.py

        kinds : a column of each encoding,
    in one shard, with hashes;
many : several shards; zstd, gz: the same, compressed. What the
rows contain is a formula, which golden_test.cpp repeats.
"""
import decimal
import json
import pathlib
import shutil

import numpy as np
from PIL import Image
from streaming import MDSWriter, StreamingDataset

golden = pathlib.Path(__file__).resolve().parent / "golden"

KINDS = {
    "a_int": "int", "b_uint8": "uint8", "b_uint16": "uint16", "b_uint32": "uint32", "b_uint64": "uint64", "c_int8": "int8",
    "c_int16": "int16", "c_int32": "int32", "c_int64": "int64", "d_float16": "float16", "d_float32": "float32",
    "d_float64": "float64", "e_str": "str", "e_bytes": "bytes", "e_json": "json", "f_str_int": "str_int",
    "f_str_float": "str_float", "f_str_decimal": "str_decimal", "g_any": "ndarray", "g_int32": "ndarray:int32",
    "g_uint16": "ndarray:uint16:2,3", "g_float": "ndarray:float32:4", "h_pil": "pil", "h_gray": "pil", "h_png": "png",
    "i_list": "list[png]", "i_array": "jpeg_array",
}


def kinds_row(i):
    rgb = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) + i
    png = Image.fromarray(rgb)
    return {
        "a_int": -i, "b_uint8": 250 + i, "b_uint16": 65530 + i, "b_uint32": 4294967290 + i, "b_uint64": 9007199254740993 + i,
        "c_int8": -120 - i, "c_int16": -32760 - i, "c_int32": -2147483640 - i, "c_int64": -9007199254740993 - i,
        "d_float16": 0.5 + i, "d_float32": 0.1 * i, "d_float64": 0.1 * i, "e_str": f"größe {i} \u4e16", "e_bytes": bytes([0, 255, i]),
        "e_json": {"i": i, "list": [1, 2.5, None]}, "f_str_int": 10**15 + i, "f_str_float": 0.1 + i * 1e17,
        "f_str_decimal": decimal.Decimal(f"{i}.250"), "g_any": np.arange(300 * (i + 1), dtype=np.int16).reshape(300, i + 1),
        "g_int32": np.arange(i + 1, dtype=np.int32) - 2, "g_uint16": np.arange(6, dtype=np.uint16).reshape(2, 3) + 65530 - i,
        "g_float": np.arange(4, dtype=np.float32) / 3 + i, "h_pil": Image.fromarray(rgb), "h_gray": Image.fromarray(rgb[:, :, 0]),
        "h_png": png, "i_list": [png] * i, "i_array": [b"one", b"three" * (i + 1)],
    }


def many_row(i):
    return {"id": i, "text": "word " * (i % 7), "tokens": np.arange(i % 5 + 1, dtype=np.int32) * i}


MANY = {"id": "int", "text": "str", "tokens": "ndarray:int32"}


def write(name, columns, rows, **options):
    folder = golden / name
    shutil.rmtree(folder, ignore_errors=True)
    with MDSWriter(out=str(folder), columns=columns, **options) as out:
        for row in rows:
            out.write(row)


def main():
    golden.mkdir(exist_ok=True)
    write("kinds", KINDS, map(kinds_row, range(4)), hashes=["blake2s", "md5", "sha1", "sha256", "sha3_256", "xxh128", "xxh32", "xxh3_128", "xxh3_64", "xxh64"])
    for name, options in {"many": {}, "zstd": {"compression": "zstd:7"}, "gz": {"compression": "gz"}}.items():
        write(name, MANY, map(many_row, range(101)), size_limit=1000, hashes=["sha1", "xxh64"], **options)
    read = StreamingDataset(local=str(golden / "many"), batch_size=1)
    assert len(read) == 101 and all(read[i]["id"] == i for i in range(101))
    print(json.dumps({path.name: sum(f.stat().st_size for f in path.iterdir()) for path in sorted(golden.iterdir())}))


if __name__ == "__main__":
    main()
