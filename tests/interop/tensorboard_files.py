#!/usr/bin/env python3
"""Reads what TensorBoardLogger writes with the tensorboard package of PyPI: the event files, then its web server.

tensorboard_files.py PROGRAM      PROGRAM is composer_log_interop. Ends with 77 (skipped) where Python has no tensorboard.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
extra = os.path.join(cache, "python-logs")
sys.path.insert(0, extra)
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
except Exception as error:
    print(f"SKIPPED, so no log is read by TensorBoard: {error}")
    sys.exit(77)

program = sys.argv[1]


def check(fact, what):
    if not fact:
        sys.exit(f"FAILED: {what}")


def array(event):
    return tensor_util.make_ndarray(event.tensor_proto)


def read_files(folder):
    new = EventAccumulator(str(folder / "new"), size_guidance={"tensors": 0})
    new.Reload()
    losses = new.Tensors("loss/train")
    check([event.step for event in losses] == list(range(20)), "the steps of loss/train")
    check(abs(array(losses[3]) - 0.25) < 1e-7, "the value of loss/train at step 3")
    check(new.SummaryMetadata("loss/train").plugin_data.plugin_name == "scalars", "the kind of loss/train")
    check([float(array(event)) for event in new.Tensors("count")] == list(range(20)), "values of 0-d tensors")
    rows = array(new.Tensors("weights")[0])
    check(rows.shape == (30, 3) and rows[:, 2].sum() == 1000 and rows[0, 0] == 0 and rows[-1, 1] == 999, "the histogram")
    image = array(new.Tensors("pictures")[0])
    check(list(image[:2]) == [b"12", b"8"] and len(image) == 5 and image[2][:4] == b"\x89PNG", "the images")
    check(array(new.Tensors("note")[0]).item().decode() == "**bold** ä", "the text")
    content = new.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    session = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    values = {key: getattr(value, value.WhichOneof("kind")) for key, value in session.hparams.items()}
    check(values == {"lr": 0.5, "bn": True, "optimizer": "adam"}, f"the hyperparameters: {values}")
    simple = EventAccumulator(str(folder / "simple"), size_guidance={"scalars": 0})
    simple.Reload()
    check([event.step for event in simple.Scalars("loss/train")] == list(range(20)), "simple values")


class Server:
    """The real server; `fast` reads with the data server written in Rust."""

    def __init__(self, folder, port, fast):
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(port), "--host",
                   "127.0.0.1", f"--load_fast={'auto' if fast else 'false'}"]
        environment = dict(os.environ, PYTHONPATH=extra + ":" + os.environ.get("PYTHONPATH", ""))
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment, cwd="/")
        self.base = f"http://127.0.0.1:{port}/data/plugin/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def get(self, path, **query):
        url = self.base + path + ("?" + urllib.parse.urlencode(query) if query else "")
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.loads(answer.read())

    def wait_for(self, path, ready):
        for _ in range(240):
            try:
                if ready(self.get(path)):
                    return
            except OSError:
                pass
            time.sleep(0.5)
        sys.exit(f"FAILED: TensorBoard does not show {path}")


def show(folder, port, fast):
    with Server(folder, port, fast) as server:
        server.wait_for("images/tags", lambda tags: "pictures" in tags.get("new", {}))
        for run in ("new", "simple"):
            points = server.get("scalars/scalars", run=run, tag="loss/train")
            check(len(points) == 20 and abs(points[3][2] - 0.25) < 1e-7, f"loss/train of {run} is not shown")
        check(len(server.get("histograms/histograms", run="new", tag="weights")) == 1, "the histogram is not shown")
        check(len(server.get("images/images", run="new", tag="pictures", sample=0)) == 1, "the images are not shown")
        check("<strong>bold</strong>" in server.get("text/text", run="new", tag="note")[0]["text"], "the text")
        check("<td>x|y</td>" in server.get("text/text", run="new", tag="table")[0]["text"], "the table is not shown")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    subprocess.run([program, name], check=True)
    read_files(folder)
    for fast in (True, False):
        show(folder, 6200 + os.getpid() % 2000 + fast, fast)
print("TensorBoard reads and shows everything")
