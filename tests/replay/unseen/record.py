#!/usr/bin/python3
"""Writes training.json and its tensors into this folder, in the form of tests/golden/training.json.

The cases are trained by a plain loop of PyTorch that does what Composer does: batch k trains with the learning rate of
batch k-1, and of several schedules the last one wins. `record.py --check` trains the recorded cases of tests/golden
with the same loop and compares the results.
"""
import argparse
import json
import math
import pathlib
import shutil
import struct
import sys

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent.parent / "golden"

ADAM = {"class": "Adam", "lr": 0.01}
CLIP_NORM = {"class": "GradientClipping", "clipping_type": "norm", "clipping_threshold": 0.5}
CLIP_VALUE = {"class": "GradientClipping", "clipping_type": "value", "clipping_threshold": 0.02}
COSINE = {"class": "CosineAnnealingScheduler", "alpha_f": 0.1}
LINEAR = {"class": "LinearScheduler"}

CASES = {
    "conv_rmsprop_{}": {"model": "conv", "optimizer": {"class": "RMSprop", "lr": 0.005}, "eval": "10ba"},
    "conv_rmsprop_momentum_centered_{}": {  # fp64 only: a difference of squares under the root amplifies roundings
        "model": "conv", "optimizer": {"class": "RMSprop", "lr": 0.002, "momentum": 0.9, "centered": True},
        "save_optimizer_state": True, "max_duration": "12ba", "dtype": "fp64"},
    "conv_adam_amsgrad_{}": {"model": "conv", "optimizer": {**ADAM, "amsgrad": True}, "eval": "10ba",
                             "save_optimizer_state": True},
    "conv_adam_microbatch_{}": {"model": "conv", "optimizer": ADAM, "device_train_microbatch_size": 3,
                                "max_duration": "20ba", "eval": "10ba"},
    "conv_adamw_clip_norm_{}": {"model": "conv", "optimizer": {"class": "AdamW", "lr": 0.01}, "algorithms": [CLIP_NORM],
                                "device_train_microbatch_size": 4, "max_duration": "20ba"},
    "conv_adam_clip_value_{}": {"model": "conv", "optimizer": ADAM, "algorithms": [CLIP_VALUE], "max_duration": "20ba"},
    "conv_sgd_momentum_{}": {"model": "conv", "optimizer": {"class": "SGD", "lr": 0.05, "momentum": 0.9,
                                                            "weight_decay": 0.01}, "eval": "10ba"},
    "conv_adagrad_{}": {"model": "conv", "optimizer": {"class": "Adagrad", "lr": 0.05}, "max_duration": "20ba"},
    "conv_adam_cosine_{}": {"model": "conv", "optimizer": ADAM, "schedulers": [COSINE], "eval": "10ba"},
    "mlp_bn_adam_{}": {"model": "mlp_bn", "optimizer": ADAM, "num_samples": 96, "max_duration": "4ep", "eval": "1ep"},
    "mlp_sgd_clip_norm_linear_{}": {"model": "mlp", "optimizer": {"class": "SGD", "lr": 0.1},
                                    "algorithms": [CLIP_NORM], "schedulers": [LINEAR]},
    "mlp_adam_clip_value_two_schedules_{}": {
        "model": "mlp", "optimizer": ADAM, "algorithms": [CLIP_VALUE], "schedulers": [LINEAR, COSINE]},
    "mlp_adam_smoothing_linear_{}": {  # targets are float32 in both types, so only this one agrees to the tolerance
        "model": "mlp", "optimizer": ADAM, "algorithms": [{"class": "LabelSmoothing", "smoothing": 0.1}],
        "schedulers": [LINEAR], "dtype": "fp32"},
    "mlp_sgd_epochs_partial_batch_linear_{}": {
        "model": "mlp", "optimizer": {"class": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True},
        "num_samples": 75, "max_duration": "3ep", "schedulers": [LINEAR], "step_schedulers_every_batch": False},
    "mlp_bn_rmsprop_samples_cosine_{}": {
        "model": "mlp_bn", "optimizer": {"class": "RMSprop", "lr": 0.003}, "num_samples": 75, "max_duration": "160sp",
        "schedulers": [COSINE]},
}


def read_safetensors(file):
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    types = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = torch.from_numpy(
            np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"]).copy())
    return tensors


def write_safetensors(file, tensors):
    types = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}
    header, parts, offset = {}, [], 0
    for name, tensor in sorted(tensors.items()):
        part = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make_net(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    if name == "mlp_bn":
        return nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 10))
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
                         nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))


def make_optimizer(recorded, parameters):
    arguments = dict(recorded)
    return getattr(torch.optim, arguments.pop("class"))(parameters, **arguments)


def factor(schedule, now, end):
    """Of a schedule over the whole run, at batch or sample `now` of `end`."""
    share = min(1.0, now / end)
    if schedule["class"] == "LinearScheduler":
        return 1.0 - share
    low = schedule.get("alpha_f", 0.0)
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * share))


class Run:
    def __init__(self, config, data):
        self.config = config
        torch.set_default_dtype(torch.float32 if config.get("dtype") == "fp32" else torch.float64)
        self.net = make_net(config["model"])
        prefix = "init." + config["model"] + "."
        self.net.load_state_dict({name[len(prefix):]: tensor for name, tensor in data.items() if name.startswith(prefix)})
        kind = "conv" if config["model"] == "conv" else "mlp"
        samples = config.get("num_samples", len(data["data." + kind + ".y"]))
        get = lambda name: data["data." + kind + "." + name]
        self.x = get("x")[:samples].to(torch.get_default_dtype())
        self.y = get("y")[:samples]
        self.x_eval, self.y_eval = get("x_eval").to(torch.get_default_dtype()), get("y_eval")
        self.batch_size = config.get("batch_size", 8 if kind == "conv" else 16)
        self.length = -(-samples // self.batch_size)
        self.optimizer = make_optimizer(config["optimizer"], self.net.parameters())
        self.base = self.optimizer.param_groups[0]["lr"]
        duration = config.get("max_duration", "30ba")
        self.unit = duration.lstrip("0123456789")
        self.count = int(duration[:-len(self.unit)])
        self.batch = self.epoch = self.sample = self.batch_in_epoch = 0
        self.rows, self.history, self.last_eval, self.evaluated = [], {}, None, None

    def now(self):
        return {"ba": self.batch, "ep": self.epoch, "sp": self.sample}[self.unit]

    def step_schedules(self):
        for schedule in self.config.get("schedulers", []):  # the last one wins
            if self.unit == "ep":
                alpha = factor(schedule, self.batch, self.count * self.length)
            else:
                alpha = factor(schedule, self.now(), self.count)
            self.optimizer.param_groups[0]["lr"] = self.base * alpha

    def algorithm(self, name):
        return next((a for a in self.config.get("algorithms", []) if a["class"] == name), None)

    def loss(self, logits, target):
        smoothing = self.algorithm("LabelSmoothing")
        if not smoothing:
            return nn.functional.cross_entropy(logits, target)
        dense = nn.functional.one_hot(target, logits.shape[1]).float()
        dense = dense * (1.0 - smoothing["smoothing"]) + smoothing["smoothing"] / logits.shape[1]
        return -(dense * nn.functional.log_softmax(logits, dim=1)).sum() / dense.sum()

    def clip(self):
        clipping = self.algorithm("GradientClipping")
        if clipping and clipping["clipping_type"] == "norm":
            nn.utils.clip_grad_norm_(self.net.parameters(), clipping["clipping_threshold"])
        elif clipping:
            nn.utils.clip_grad_value_(self.net.parameters(), clipping["clipping_threshold"])

    def train_batch(self):
        begin = self.batch_in_epoch * self.batch_size
        x, y = self.x[begin:begin + self.batch_size], self.y[begin:begin + self.batch_size]
        size = self.config.get("device_train_microbatch_size", 0) or len(x)
        self.optimizer.zero_grad(set_to_none=True)
        total, right = 0.0, 0
        for first in range(0, len(x), size):
            part_x, part_y = x[first:first + size], y[first:first + size]
            logits = self.net(part_x)
            loss = self.loss(logits, part_y)
            (loss * (len(part_x) / len(x))).backward()
            total += loss.item() * len(part_x) / len(x)
            right += (logits.argmax(1) == part_y).sum().item()
        self.clip()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.rows.append([self.batch + 1, [rate], {"loss/train/total": total},
                          {"MulticlassAccuracy": float(np.float32(right / len(x)))}])
        return len(x)

    def evaluate(self):
        self.net.eval()
        losses, right = [], 0
        with torch.no_grad():
            for begin in range(0, len(self.x_eval), 20):
                logits = self.net(self.x_eval[begin:begin + 20])
                losses.append(nn.functional.cross_entropy(logits, self.y_eval[begin:begin + 20]).item())
                right += (logits.argmax(1) == self.y_eval[begin:begin + 20]).sum().item()
        self.net.train()
        self.evaluated = self.batch
        self.last_eval = {"CrossEntropy": sum(losses) / len(losses),
                          "MulticlassAccuracy": float(np.float32(right / len(self.x_eval)))}
        for name, value in self.last_eval.items():
            self.history.setdefault("metrics/eval/" + name, []).append([self.batch, value])

    def evaluate_every(self, unit, count):
        interval = self.config.get("eval", "")
        if interval.endswith(unit) and count % int(interval[:-2]) == 0:
            self.evaluate()

    def train(self):
        every_batch = self.config.get("step_schedulers_every_batch", True)
        self.net.train()
        self.step_schedules()
        while self.now() < self.count:
            size = self.train_batch()
            if every_batch:
                self.step_schedules()  # before the batch is counted
            self.batch, self.sample, self.batch_in_epoch = self.batch + 1, self.sample + size, self.batch_in_epoch + 1
            self.evaluate_every("ba", self.batch)
            if self.batch_in_epoch < self.length:
                continue
            if not every_batch:
                self.step_schedules()
            self.epoch, self.batch_in_epoch = self.epoch + 1, 0
            self.evaluate_every("ep", self.epoch)
        if "eval" in self.config and self.evaluated != self.batch:
            self.evaluate()

    def tensors(self):
        found = {"final.module." + name: tensor.detach() for name, tensor in self.net.state_dict().items()}
        if self.config.get("save_optimizer_state"):
            for name, parameter in self.net.named_parameters():
                for key, value in self.optimizer.state[parameter].items():
                    if value is None:
                        continue
                    value = value if torch.is_tensor(value) else torch.tensor(float(value))
                    found["optimizer.module." + name + "." + key] = value.float() if key == "step" else value
        return found

    def document(self, name):
        c = {"id": name, "config": self.config, "rows": self.rows, "random_log": [],
             "optimizer_parameters_at_end": [["module." + n for n, _ in self.net.named_parameters()]],
             "optimizer_class_at_end": type(self.optimizer).__name__}
        if "eval" in self.config:
            c.update(eval_history=self.history, final_eval_metrics=self.last_eval)
        return c


def record(data):
    cases, tensors = [], {}
    for template, config in CASES.items():
        for dtype, short in (("fp64", "f64"), ("fp32", "f32")):
            if config.get("dtype", dtype) != dtype:
                continue
            run = Run({**config, "dtype": dtype}, data)
            run.train()
            name = template.format(short)
            cases.append(run.document(name))
            tensors.update({name + "/" + key: tensor for key, tensor in run.tensors().items()})
    document = {"recorded": "by tests/replay/unseen/record.py on PyTorch " + torch.__version__, "cases": cases}
    (HERE / "training.json").write_text(json.dumps(document) + "\n")
    write_safetensors(HERE / "training.safetensors", tensors)
    shutil.copyfile(GOLDEN / "training_data.safetensors", HERE / "training_data.safetensors")


def check(data):
    """Whether the loop does what was recorded from Composer."""
    recorded, tensors = json.loads((GOLDEN / "training.json").read_text()), read_safetensors(GOLDEN / "training.safetensors")
    known = ("LinearScheduler", "CosineAnnealingScheduler")
    for c in recorded["cases"]:
        config = c["config"]
        algorithms = [a["class"] for a in config.get("algorithms", [])]
        foreign = (config["optimizer"]["class"].startswith("Decoupled") or "loss_mode" in config
                   or any(a not in ("LabelSmoothing", "GradientClipping") for a in algorithms) or "adaptive" in c["id"]
                   or any(s["class"] not in known for s in config.get("schedulers", [])))
        if foreign:
            continue
        run = Run(config, data)
        run.train()
        tolerance = 1e-4 if config.get("dtype") == "fp32" else 1e-7 if "LabelSmoothing" in algorithms else 1e-8
        for mine, theirs in zip(run.rows, c["rows"]):
            assert mine[:1] == theirs[:1] and math.isclose(mine[1][0], theirs[1][0], rel_tol=1e-12), (c["id"], mine, theirs)
            total = theirs[2]["loss/train/total"]
            assert math.isclose(mine[2]["loss/train/total"], total, rel_tol=tolerance), (c["id"], mine, theirs)
        assert len(run.rows) == len(c["rows"]), c["id"]
        for name, tensor in run.tensors().items():
            if name.startswith("final"):
                difference = (tensor - tensors[c["id"] + "/" + name]).abs().max().item()
                assert difference < tolerance, (c["id"], name, difference)
        print("as recorded:", c["id"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    data = read_safetensors(GOLDEN / "training_data.safetensors")
    check(data) if parser.parse_args().check else record(data)


if __name__ == "__main__":
    sys.exit(main())
