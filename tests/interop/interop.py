#!/usr/bin/env python3
"""Files between this library and PyTorch's Python: both write, both read, and the tensors are equal to the bit.

interop.py PROGRAM      PROGRAM is composer_interop. Ends with 77 (skipped) where Python has no torch or no safetensors.
"""
import inspect
import pathlib
import subprocess
import sys
import tempfile
import zipfile

try:
    import safetensors
    import safetensors.torch
    import torch
except Exception as error:  # an installation may lack libraries of the GPU
    print(f"SKIPPED, so nothing is compared with PyTorch's Python: {error}")
    sys.exit(77)

try:
    import torchvision
except Exception as error:
    print(f"without torchvision's models: {error}")
    torchvision = None

try:
    from torch.utils.flop_counter import FlopCounterMode
except Exception as error:  # since 2.1
    print(f"without counts of FLOPs: {error}")
    FlopCounterMode = None

try:
    import composer
    import composer.algorithms
    import composer.models
    from torch.utils.data import DataLoader, TensorDataset
except Exception as error:
    print(f"without checkpoints of Composer: {error}")
    composer = None

program = sys.argv[1]
def known(*names):  # older versions of torch lack some
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


MAPS = "mmap" in inspect.signature(torch.load).parameters
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SMALL = known("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
INTEGERS = known("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
checked = 0


def ours(*arguments):
    return subprocess.run([program, *map(str, arguments)], check=True)


def tensors():
    torch.manual_seed(7)
    base = torch.randn(5, 7) * 3
    result = {f"of.{dtype}": base.abs().to(dtype) for dtype in FLOATS + SMALL + INTEGERS}
    result |= {
        "special": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
        "complex": torch.complex(base, -base),
        "bool": base > 0,
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.5),
        "scalar.long": torch.tensor(2**62),
        "ä \"quoted\" \\ name": torch.ones(2),
    }
    return result


def views(base):
    """What safetensors of Python refuses, and torch.save keeps."""
    return {"transposed": base.t(), "row": base[2], "expanded": base[0].expand(4, 7), "step": base[:, ::2], "whole": base}


def storage_of(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr()


def same(a, b):
    """To the bit: what numbers compare as equal, and what not, does not matter."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = lambda t: t.detach().contiguous().reshape(-1).view(torch.uint8)
    return a.numel() == 0 or torch.equal(bits(a), bits(b))


def check(what, expected, got):
    global checked
    wrong = [name for name in expected if name not in got or not same(expected[name], got[name])]
    if wrong or expected.keys() != got.keys():
        sys.exit(f"{what}: differs in {wrong or expected.keys() ^ got.keys()}")
    checked += len(expected)


def load(path, **options):
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path, weights_only=True, **options)


def theirs_to_ours_and_back(folder):
    plain, shared = tensors(), views(torch.arange(35.0).view(5, 7))
    parameter = torch.nn.Parameter(torch.ones(3))
    sources = {
        "theirs.safetensors": plain,
        "theirs.pt": plain | shared | {"parameter": parameter, "complex128": torch.ones(2, dtype=torch.complex128)},
    }
    safetensors.torch.save_file(plain, folder / "theirs.safetensors", metadata={"format": "pt", "note": "ä\n"})
    torch.save(sources["theirs.pt"], folder / "theirs.pt")
    for source, expected in sources.items():
        for target in ("back.safetensors", "back.pt"):
            if target == "back.safetensors":
                expected = {name: value for name, value in expected.items() if value.dtype != torch.complex128}
                torch.save(expected, folder / "theirs2.pt")
                ours("convert", folder / (source if source.endswith("safetensors") else "theirs2.pt"), folder / target)
            else:
                expected = sources[source]
                ours("convert", folder / source, folder / target)
            check(f"{source} to {target}", expected, load(folder / target))
            if target == "back.pt":
                if MAPS:
                    check(f"{source} to {target}, mapped", expected, load(folder / target, mmap=True))
                if zipfile.ZipFile(folder / target).testzip():
                    sys.exit("zipfile finds a wrong CRC")
    back = load(folder / "back.pt")
    if storage_of(back["row"]) != storage_of(back["whole"]):
        sys.exit("tensors that shared memory do not share it any more")
    for protocol in (2, 3, 4, 5):
        torch.save(plain, folder / "protocol.pt", pickle_protocol=protocol)
        ours("equal", folder / "protocol.pt", folder / "theirs.safetensors")
    # Twice the same bytes of metadata and tensors: what we wrote, they can write again, and we read it.
    safetensors.torch.save_file(load(folder / "back.safetensors"), folder / "again.safetensors")
    ours("equal", folder / "back.safetensors", folder / "again.safetensors")


def ours_to_theirs(folder):
    make = "make" if hasattr(torch, "float8_e8m0fnu") and hasattr(torch, "uint64") else "make-old"
    ours(make, folder / "ours.safetensors")
    ours(make, folder / "ours.pt")
    check("ours", load(folder / "ours.safetensors"), load(folder / "ours.pt"))
    if MAPS:
        check("ours, mapped", load(folder / "ours.safetensors"), load(folder / "ours.pt", mmap=True))
    with safetensors.safe_open(folder / "ours.safetensors", "pt") as file:
        if not file.metadata()["composer.header"].startswith("xxh3:"):
            sys.exit("the checksum of the header is not in the metadata")
        for name in file.keys():
            if not same(file.get_tensor(name), load(folder / "ours.pt")[name]):
                sys.exit(f"safe_open: {name} differs")


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(8, 6), torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def a_model(folder, which, make):
    model, other = make(), make()
    for source in ("model.safetensors", "model.pt", "composer.pt"):
        if source == "composer.pt":  # a checkpoint of Composer, with what is no tensor
            torch.save({"state": {"model": model.state_dict(), "timestamp": {"epoch": 3}, "run_name": "x"}, "rng": [None]},
                       folder / source)
        elif source == "model.pt":
            torch.save(model.state_dict(), folder / source)
        else:
            safetensors.torch.save_model(model, str(folder / source))
        for target in ("model.back.safetensors", "model.back.pt"):
            ours("weights", which, folder / source, folder / target)
            other.load_state_dict(load(folder / target), strict=True)
            check(f"{which}: {source} to {target}", model.state_dict(), other.state_dict())
    safetensors.torch.load_model(other, str(folder / "model.back.safetensors"), strict=True)
    if list(load(folder / "model.back.pt")) != list(model.state_dict()):
        sys.exit(f"{which}: the state_dict has another order")


def composers_run(folder, **options):
    """What Composer's own trainer saves: times, versions and random states of numpy are pickled beside the weights."""
    model = composer.models.ComposerClassifier(Mlp(), num_classes=4)
    batch = DataLoader(TensorDataset(torch.randn(4, 8), torch.arange(4)), batch_size=4)
    trainer = composer.Trainer(
        model=model, train_dataloader=batch, eval_dataloader=batch, max_duration="1ep", device="cpu",
        optimizers=torch.optim.Adam(model.parameters()), schedulers=composer.optim.LinearScheduler(),
        algorithms=composer.algorithms.EMA(half_life="1ba"), save_folder=str(folder / "run"), save_overwrite=True,
        save_filename="ep{epoch}.pt", save_metrics=True, progress_bar=False, **options)
    trainer.fit()
    trainer.close()
    saved = torch.load(folder / "run" / "ep1.pt", weights_only=False)
    if set(saved) != ({"state"} if options else {"state", "rng"}):
        sys.exit(f"Composer's checkpoint has {set(saved)}")
    for target in ("run.safetensors", "run.pt"):
        ours("run", folder / "run" / "ep1.pt", folder / target)
        check(f"Composer's run with {options} to {target}", dict(saved["state"]["model"]), load(folder / target))


def resnet18():
    model = torchvision.models.resnet18()
    for name, buffer in model.named_buffers():  # so that they are not what a new model has
        buffer.fill_(3)
    return model


def refused(folder):
    """A class of its own, and a function that would be called."""
    class Evil:
        def __reduce__(self):
            return print, ("this must not be printed by us",)

    torch.save({"w": torch.ones(1), "evil": Evil()}, folder / "evil.pt")
    result = subprocess.run([program, "convert", folder / "evil.pt", folder / "x.pt"], capture_output=True, text=True)
    if result.returncode != 1 or "print: a class or function" not in result.stderr or result.stdout:
        sys.exit(f"a pickle with code was not refused: {result}")
    with open(folder / "old.pt", "wb") as file:
        torch.save({"w": torch.ones(1)}, file, _use_new_zipfile_serialization=False)
    result = subprocess.run([program, "convert", folder / "old.pt", folder / "x.pt"], capture_output=True, text=True)
    if result.returncode != 1:
        sys.exit(f"a file of the old format was not refused: {result}")


def flops():
    """SpeedMonitor's count and that of PyTorch's FlopCounterMode, of the models of print_flops() in main.cpp."""
    def counted(forward):
        with FlopCounterMode(display=False) as mode:
            forward().sum().backward()
        return mode.get_total_flops()

    def leaf(*sizes):
        return torch.randn(*sizes, requires_grad=True)

    expected = {
        "linear": counted(lambda: torch.nn.functional.linear(torch.randn(4, 3), leaf(5, 3))),
        "bmm": counted(lambda: leaf(2, 4, 3) @ leaf(2, 3, 6)),
        "conv2d": counted(lambda: torch.nn.functional.conv2d(leaf(2, 4, 9, 7), leaf(6, 4, 3, 3), stride=2, padding=1)),
        "conv_transpose2d": counted(lambda: torch.nn.functional.conv_transpose2d(leaf(2, 4, 9, 7), leaf(4, 6, 3, 3))),
    }
    if torchvision:
        expected["resnet18"] = counted(lambda: torchvision.models.resnet18()(torch.randn(2, 3, 64, 64)))
    lines = subprocess.run([program, "flops"], check=True, capture_output=True, text=True).stdout.splitlines()
    got = {name: int(number) for name, number in map(str.split, lines)}
    for name, number in expected.items():
        if got[name] != number:
            sys.exit(f"{name}: FlopCounterMode counts {number} FLOPs, we count {got[name]}")
    print(f"FLOPs as FlopCounterMode counts them: {', '.join(expected)}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    theirs_to_ours_and_back(folder)
    ours_to_theirs(folder)
    a_model(folder, "mlp", Mlp)
    if torchvision:
        a_model(folder, "resnet18", resnet18)
    if composer:
        composers_run(folder)
        composers_run(folder, save_weights_only=True)
    refused(folder)
if FlopCounterMode:
    flops()
print(f"{checked} tensors equal to the bit, with torch {torch.__version__} and safetensors {safetensors.__version__}")
