#!/usr/bin/env python3
"""Reads what WandBLogger writes with the wandb package of PyPI: its schema, then `wandb sync` to a server of this test.

wandb_runs.py PROGRAM      PROGRAM is composer_service_interop. Ends with 77 (skipped) where Python has no wandb.
"""
import gzip
import hashlib
import http.server
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import zlib

cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
extra = os.path.join(cache, "python-wandb")
sys.path.insert(0, extra)
try:
    import wandb
    from wandb.proto import wandb_internal_pb2
except Exception as error:
    print(f"SKIPPED, so no run is read by W&B: {error}")
    sys.exit(77)

program = sys.argv[1]
STEPS = 2000


def check(fact, what):
    if not fact:
        sys.exit(f"FAILED: {what}")


def read_records(path):
    """Records of a file, parsed by the package. (The package's own reader was in Python up to version 0.21.)"""
    data = path.read_bytes()
    check(data[:7] == struct.pack("<4sHB", b":W&B", 0xBEE1, 0), "the beginning of the file")
    at, whole = 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at:at + 7])
        chunk = data[at + 7:at + 7 + length]
        check(zlib.crc32(bytes([kind]) + chunk) == checksum, "a checksum")
        whole += chunk
        at += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def read_files(run):
    records = list(read_records(next(run.glob("run-*.wandb"))))
    check([record.num for record in records] == list(range(1, len(records) + 1)), "the numbers of the records")
    kinds = [record.WhichOneof("record_type") for record in records]
    check(kinds[:3] == ["header", "run", "environment"] and kinds[-1] == "exit", f"the kinds of records: {kinds[:3]}")
    rows = [{item.key: json.loads(item.value_json) for item in record.history.item}
            for record in records if record.HasField("history")]
    check([row["_step"] for row in rows] == list(range(STEPS + 1)), "the steps")
    check(rows[3]["loss/train"] == 0.25 and rows[7]["count"] == 7, "the values")
    image = rows[-1]["one"]
    data = (run / "files" / image["path"]).read_bytes()
    check(hashlib.sha256(data).hexdigest() == image["sha256"] and len(data) == image["size"], "the image")
    files = {file.path for record in records for file in record.files.files}
    check(all((run / "files" / path).exists() for path in files) and "notes/hello ä.txt" in files, f"files: {files}")
    check(records[-1].exit.exit_code == 1, "the exit code")
    return rows, files


class Server(http.server.ThreadingHTTPServer):
    """As much of W&B's server as wandb sync asks for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines, self.puts, self.upserts, self.ended = {}, {}, [], None
        self.base = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        pass  # wandb drops connections when it ends

    def answer(self, query, variables):
        if "UpsertBucket" in query:
            self.upserts.append(variables)
            project = {"id": "p", "name": variables.get("project") or "uncategorized", "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "UnVuOnYxOng=", "name": variables.get("name"), "displayName": variables.get("displayName"),
                      "description": None, "config": variables.get("config") or "{}", "sweepName": None,
                      "project": project, "historyLineCount": 0}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "CreateRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.base}/storage/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        if "Viewer" in query:
            return {"viewer": {"id": "u", "entity": "me", "flags": "{}", "username": "me", "teams": {"edges": []}}}
        if "ServerFeatures" in query:
            return {"serverInfo": {"features": []}}
        return {}

    def take_stream(self, body):
        for name, chunk in (body.get("files") or {}).items():
            lines = self.lines.setdefault(name, [])
            lines[chunk["offset"]:] = chunk["content"]
        if body.get("complete") is not None:
            self.ended = (body["complete"], body.get("exitcode"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if (length := self.headers.get("Content-Length")) is not None:
            data = self.rfile.read(int(length))
        else:
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def reply(self, content):
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        body = self.body()
        if self.path == "/graphql":
            request = json.loads(body)
            return self.reply({"data": self.server.answer(request["query"], request.get("variables") or {})})
        if self.path.endswith("/file_stream"):
            self.server.take_stream(json.loads(body))
        self.reply({"limits": {}})

    def do_PUT(self):
        self.server.puts[self.path.removeprefix("/storage/")] = self.body()
        self.reply({})

    def do_GET(self):
        self.reply({})

    def log_message(self, *_):
        pass


def sync(run, rows, files):
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = dict(os.environ, WANDB_BASE_URL=server.base, WANDB_API_KEY="a" * 40, WANDB_ERROR_REPORTING="false",
                       PYTHONPATH=extra + ":" + os.environ.get("PYTHONPATH", ""), HOME=str(run.parent))
    result = subprocess.run([sys.executable, "-m", "wandb", "sync", str(run)], env=environment, cwd=run.parent,
                            capture_output=True, text=True, timeout=300)
    server.shutdown()
    check(result.returncode == 0, f"wandb sync: {result.stdout}{result.stderr}")
    sent = [json.loads(line) for line in server.lines.get("wandb-history.jsonl", [])]
    check(len(sent) == len(rows), f"{len(sent)} of {len(rows)} rows were sent")
    check(sent[3]["loss/train"] == 0.25 and sent[-1]["big"] == "x" * 100_000, "the rows sent")
    check(sent[-1]["nan"] != sent[-1]["nan"] and sent[-1]["inf"] == float("-inf"), "NaN and infinity")
    check(sent[-1]["one"]["masks"]["truth"]["_type"] == "mask", "the mask")
    check(sent[-1]["eval/pictures"]["count"] == 3, "the images")
    check(sent[-1]["table"]["_type"] == "table-file" and sent[-1]["weights"]["_type"] == "histogram", "table and histogram")
    summary = {}
    for line in server.lines["wandb-summary.json"]:
        summary.update(json.loads(line))
    check(summary["count"] == STEPS - 1 and summary["one"] == sent[-1]["one"], "the summary")
    check(server.ended == (True, 1), f"the end of the run: {server.ended}")
    first, config = server.upserts[0], json.loads(server.upserts[-1]["config"])
    check(first["project"] == "p" and first["displayName"] == "it's C++ ä" and first["groupName"] == "g", f"{first}")
    check(first["tags"] == ["a", "b"] and first["jobType"] == "train", f"{first}")
    check(config["lr"]["value"] == 0.5 and config["name"]["value"] == 'adam "x"\n', f"the config: {config}")
    labels = config["_wandb"]["value"]["mask/class_labels"]["one_wandb_delimeter_truth"]
    check(labels["value"] == {"0": "sky", "1": "sea"}, f"the names of classes: {labels}")
    missing = files - {urllib.parse.unquote(name) for name in server.puts}
    check(not missing, f"files that were not sent: {missing}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    id = subprocess.run([program, "wandb", name, folder / "file"], check=True, capture_output=True, text=True).stdout.strip()
    runs = list((folder / "wandb").iterdir())
    check(len(runs) == 1 and runs[0].name.endswith(id), f"the folder: {runs}")
    sync(runs[0], *read_files(runs[0]))
print(f"wandb {wandb.__version__} reads and sends everything")
