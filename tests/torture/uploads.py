#!/usr/bin/env python3
"""Kills a training program that uploads its checkpoints, at random moments and many times, and resumes it, also on
another machine: one without the files that waited for their upload. In the end the bucket must hold the checkpoints
that the run keeps, each whole, and nothing else; and they must be equal to those of a run that was never killed.

uploads.py COMPOSER TRAINEE [--kills 20] [--seed 1] [--kinds folder,s3] [--epochs 8] [--keep FOLDER]

After each kill, what is complete in the bucket must be whole, and the newest checkpoint must not be older than before.
"""
import argparse
import hashlib
import http.server
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse


class Bucket(http.server.ThreadingHTTPServer):
    """One bucket, "b", which answers as S3 does, after some milliseconds. Every object appears whole or not at all."""

    daemon_threads = True

    def __init__(self, seed):
        super().__init__(("127.0.0.1", 0), Answer)
        self.objects, self.lock, self.random = {}, threading.Lock(), random.Random(seed)
        self.requests = self.refused = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # the client was killed

    def pause(self):
        """Returns False if the request is to fail once."""
        with self.lock:
            self.requests += 1
            delay, fails = self.random.uniform(0, 0.012), self.random.random() < 0.01
            self.refused += fails
        time.sleep(delay)
        return not fails


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path).removeprefix("/b").removeprefix("/")
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        bucket = self.server
        if not bucket.pause():
            return self.reply(503)
        with bucket.lock:
            if "list-type" in query:
                return self.reply(200, listing(bucket.objects, query))
            if self.command == "PUT":
                bucket.objects[key] = body
            elif self.command == "DELETE":
                bucket.objects.pop(key, None)
                return self.reply(204)
            elif key not in bucket.objects:
                return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            content = bucket.objects[key]
        self.reply(200, b"" if self.command == "PUT" else content, ETag=f'"{hashlib.md5(content).hexdigest()}"')

    do_GET = do_HEAD = do_PUT = do_DELETE = answer


def listing(objects, query):
    names = sorted(name for name in objects if name.startswith(query["prefix"]))
    names = [name for name in names if name > query.get("continuation-token", "")]
    page, more = names[:5], len(names) > 5
    text = "<ListBucketResult><EncodingType>url</EncodingType>"
    for name in page:
        text += f"<Contents><Key>{urllib.parse.quote(name)}</Key><Size>{len(objects[name])}</Size></Contents>"
    if more:
        text += f"<NextContinuationToken>{page[-1]}</NextContinuationToken>"
    return (text + "</ListBucketResult>").encode()


class Place:
    """Where a run saves: a folder or a bucket of S3."""

    def __init__(self, kind, folder, seed):
        self.folder = folder / "bucket"
        self.server = Bucket(seed) if kind == "s3" else None
        self.uri = "s3://b/runs/trainee" if self.server else str(self.folder)
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
        if self.server:
            self.environment.update(S3_ENDPOINT_URL=self.server.url(), AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b",
                                    AWS_REGION="us-east-1", no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")

    def copy_to(self, folder):
        """All files, as they are at this moment."""
        if not self.server:
            return shutil.copytree(self.folder, folder) if self.folder.exists() else folder.mkdir()
        folder.mkdir()
        with self.server.lock:
            for name, content in self.server.objects.items():
                path = folder / name.removeprefix("runs/trainee/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def checkpoints(folder):
    return sorted(path.parent.name for path in folder.glob("*/manifest.json"))


def batch_of(name):
    return int(name.rsplit("ba", 1)[1])


def losses(log):
    """What each batch was computed from, and what came of it."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name == "batch" or name.startswith(("bits/", "loss/"))}
            for line in lines]


class Torture:
    def __init__(self, options):
        self.options, self.wrong = options, []

    def composer(self, *arguments):
        result = subprocess.run([self.options.composer, *map(str, arguments)], capture_output=True, text=True)
        return "" if result.returncode == 0 else (result.stdout + result.stderr).strip()

    def command(self, *more):
        return [self.options.trainee, "--epochs", str(self.options.epochs), *more]

    def run_unbroken(self, folder):
        folder.mkdir()
        start = time.monotonic()
        subprocess.run(self.command(), cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"))
        return time.monotonic() - start

    def check(self, fact, what):
        if not fact:
            self.wrong.append(what)
            print("WRONG:", what, flush=True)

    def look(self, place, folder, newest, when):
        """The bucket after a kill: the batch of the newest checkpoint."""
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        place.copy_to(copy)
        names = checkpoints(copy)
        for name in names:
            damage = self.composer("verify", "--quiet", copy / name)
            self.check(not damage, f"{when}: {damage}")
        now = max(map(batch_of, names), default=0)
        self.check(now >= newest, f"{when}: the newest checkpoint in the bucket is of batch {now}, after {newest}")
        return now

    def run_killed(self, kind, number, folder, reference, kills_left, latest):
        """One run, killed until it ends by itself. Returns the number of kills."""
        chance = random.Random(f"{self.options.seed} {kind} {number}")
        folder.mkdir()
        place = Place(kind, folder, chance.random())
        kills = moves = newest = 0
        while not self.wrong:
            with open(folder / "output", "ab") as output:
                process = subprocess.Popen(self.command("--uploads", place.uri), cwd=folder, stdout=output,
                                           stderr=output, env=place.environment)
                delay = chance.uniform(0.3 * latest, latest)
                try:
                    process.wait(delay if kills < kills_left else 120)
                    break
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self.check(kills < kills_left, f"{folder}: it did not end within two minutes")
            kills += 1
            newest = self.look(place, folder, newest, f"{folder}, kill {kills}")
            if chance.random() < 0.2:
                shutil.rmtree(folder / "staging", ignore_errors=True)
                moves += 1
        if not self.wrong:
            self.check_end(place, folder, reference, process.returncode)
        print(f"  {kind} run {number}: {kills} kills, {moves} moves to another machine" +
              (f", {place.server.requests} requests, {place.server.refused} refused" if place.server else "") +
              (": WRONG" if self.wrong else ": equal"), flush=True)
        if place.server:
            place.server.shutdown()
            place.server.server_close()
        if not self.wrong:
            shutil.rmtree(folder)
        return kills

    def check_end(self, place, folder, reference, code):
        self.check(code == 0, f"{folder}: it ended with {code}")
        self.look(place, folder, 0, f"{folder}, at its end")
        copy = folder / "copy"
        expected = sorted(path.relative_to(reference / "checkpoints").as_posix()
                          for path in (reference / "checkpoints").glob("ep*/*"))
        there = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file())
        self.check(there == expected, f"{folder}: the bucket holds {there}, and not {expected}")
        if self.wrong:
            return
        for name in checkpoints(copy):
            difference = self.composer("diff", reference / "checkpoints" / name, copy / name, "--ignore", "saver/*")
            self.check(not difference, f"{folder}: {name} is not that of the run that was not killed: {difference}")
        self.check(losses(reference / "log.jsonl") == losses(folder / "log.jsonl"), f"{folder}: the logs differ")
        left = [str(path) for path in folder.glob("staging/*/*")
                if path.name.startswith(".fetch-") or (path.name.startswith("waiting") and any(path.iterdir()))]
        left += [str(path) for path in folder.glob("staging/*/checkpoints/.*")]
        self.check(not left, f"{folder}: {left} is left")

    def torture(self, folder):
        reference = folder / "unbroken"
        seconds = self.run_unbroken(reference)
        print(f"  the uninterrupted run: {seconds:.1f} s", flush=True)
        for kind in self.options.kinds.split(","):
            kills = number = 0
            while kills < self.options.kills and not self.wrong:
                number += 1
                kills += self.run_killed(kind, number, folder / f"{kind}-{number}", reference,
                                         self.options.kills - kills, max(1.0, 0.6 * seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("composer", type=os.path.abspath)
    parser.add_argument("trainee", type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="folder,s3")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--keep", help="an empty folder to work in, which stays")
    options = parser.parse_args()
    torture = Torture(options)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="composer-uploads-")).resolve()
    torture.torture(folder)
    if torture.wrong:
        sys.exit(f"{len(torture.wrong)} facts are wrong; the files are in {folder}")
    if not options.keep:
        shutil.rmtree(folder)
    print("nothing was lost, and nothing is left")


if __name__ == "__main__":
    main()
