#!/usr/bin/env python3
"""Reads what MLFlowLogger writes with the mlflow package of PyPI: a folder of its file store, then a run at its server.

mlflow_runs.py PROGRAM      PROGRAM is composer_service_interop. Ends with 77 (skipped) where Python has no mlflow.
"""
import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
extra = os.path.join(cache, "python-mlflow")
sys.path.insert(0, extra)
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
try:
    import mlflow
    from mlflow import MlflowClient
except Exception as error:
    print(f"SKIPPED, so no run is read by MLflow: {error}")
    sys.exit(77)

program = sys.argv[1]
STEPS = 2000
BIGGEST = sys.float_info.max


def check(fact, what):
    if not fact:
        sys.exit(f"FAILED: {what}")


def write(uri, folder):
    result = subprocess.run([program, "mlflow", uri, folder / "file"], check=True, capture_output=True, text=True)
    check(not result.stderr, result.stderr)
    return result.stdout.strip()


def read(client, id, folder):
    run = client.get_run(id)
    experiment = client.get_experiment_by_name("from C++")
    check(run.info.experiment_id == experiment.experiment_id, "the experiment")
    check(run.info.run_name == "it's C++ ä" and run.info.status == "FAILED", f"{run.info}")
    check(run.info.end_time >= run.info.start_time > 1.7e12, f"{run.info}")
    check(run.data.params == {"lr": "0.5", "bn": "True", "name": 'adam "x"\n'}, f"params: {run.data.params}")
    check(run.data.tags["k"] == "v" and run.data.tags["big"] == "x" * 8000, "the tags")
    history = client.get_metric_history(id, "loss/train")
    check([point.step for point in history] == list(range(STEPS)), "the steps")
    check(history[3].value == 0.25 and history[3].timestamp > 1.7e12, "the values")
    check(math.isnan(run.data.metrics["nan"]), "NaN")
    check(run.data.metrics["inf"] in (-math.inf, -BIGGEST), "infinity, which a database stores as the least number")
    check(run.data.metrics["a_b/c"] == 1.5, "the key that was renamed")
    for name, begin in {"images/one/2000_0.png": b"\x89PNG", "images/eval/pictures/2000_2.png": b"\x89PNG",
                        "images/one/2000_0_truth.png": b"\x89PNG", "notes/hello ä.txt": b"hello"}.items():
        path = client.download_artifacts(id, name, str(folder))
        check(pathlib.Path(path).read_bytes().startswith(begin), name)
    table = json.loads(pathlib.Path(client.download_artifacts(id, "tables/table/2000.json", str(folder))).read_text())
    check(table == {"columns": ["a", "b"], "data": [[1.5, "x"]]}, f"{table}")


class Server:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
                   "--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "artifacts")]
        environment = dict(os.environ, PYTHONPATH=extra + ":" + os.environ.get("PYTHONPATH", ""))
        self.log = open(folder / "server.log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment, cwd=folder,
                                        start_new_session=True)

    def __enter__(self):
        for _ in range(360):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5)
                return self
            except OSError:
                time.sleep(0.5)
        self.log.seek(0)
        sys.exit(f"FAILED: mlflow server does not answer: {self.log.read()}")

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    id = write(folder / "mlruns", folder)
    (folder / "a").mkdir()
    read(MlflowClient(f"file://{folder}/mlruns"), id, folder / "a")
    with Server(folder) as server:
        id = write(server.url, folder)
        mlflow.set_tracking_uri(server.url)
        (folder / "b").mkdir()
        read(MlflowClient(server.url), id, folder / "b")
print(f"mlflow {mlflow.__version__} reads everything, from a folder and at its server")
