#!/usr/bin/env python3
"""Runs exported models with the programs of others, and compares the outputs.

exports.py PROGRAM onnx           onnxruntime
exports.py PROGRAM torchscript    PyTorch's Python

PROGRAM is composer_export_interop. Ends with 77 (skipped) where the other program is missing.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

program, part = sys.argv[1:3]
cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
sys.path.append(str(pathlib.Path(cache) / "python-exports"))


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


try:
    import numpy
    import safetensors.numpy
    if part == "onnx":
        import onnxruntime
    else:
        import torch
except Exception as error:
    skip(f"no exported model is run by others: {error}")
if part == "torchscript" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 0):
    skip(f"PyTorch {torch.__version__} has no attention as one operator")


def run_onnx(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = {value.name: inputs[value.name] for value in session.get_inputs()}
    dimensions = [value.shape[0] for value in session.get_inputs()]
    assert dimensions == ["batch"] * len(dimensions), dimensions
    return session.run(None, named), [value.name for value in session.get_outputs()]


def run_torch(path, inputs):
    with torch.no_grad():
        results = torch.jit.load(str(path))(*map(torch.from_numpy, inputs.values()))
    return [result.numpy() for result in (results if isinstance(results, tuple) else (results,))], None


def differs(got, expected):
    return got.shape != expected.shape or not numpy.allclose(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    subprocess.run([program, str(folder)], check=True)
    wrong = []
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        tensors = safetensors.numpy.load_file(file)
        with safetensors.safe_open(file, "numpy") as opened:
            order = opened.metadata()["inputs"].split()
        expected = {key[7:]: value for key, value in tensors.items() if key.startswith("output.")}
        inputs = {key: tensors["input." + key] for key in order}
        for samples in 1, next(iter(inputs.values())).shape[0]:
            try:
                some = {key: value[:samples] for key, value in inputs.items()}
                run, suffix = (run_onnx, ".onnx") if part == "onnx" else (run_torch, ".pt")
                results, names = run(file.with_suffix(suffix), some)
            except Exception as error:
                wrong.append(f"{file.stem}, {samples} samples: {error}")
                continue
            for result, key in zip(results, names or expected):
                if differs(result, expected[key][:samples]):
                    wrong.append(f"{file.stem}, {samples} samples: {key} differs by {abs(result - expected[key][:samples]).max()}")
    if wrong:
        sys.exit("FAILED:\n" + "\n".join(wrong))
    print(f"{part}: {len(files)} models have the outputs that they have here")
