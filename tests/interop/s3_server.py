#!/usr/bin/env python3
"""Stores files and checkpoints in the S3 server of the moto package of PyPI, which verifies signatures, and reads them
with boto3.

s3_server.py PROGRAM      PROGRAM is composer_s3_interop. Ends with 77 (skipped) where Python has no moto.
"""
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

cache = os.environ.get("COMPOSER_CACHE") or os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/libcomposer"
extra = os.path.join(cache, "python-s3")
sys.path.insert(0, extra)
try:
    import boto3
    import moto.server
except Exception as error:
    print(f"SKIPPED, so nothing is stored in an S3 server: {error}")
    sys.exit(77)

program = sys.argv[1]


def check(fact, what):
    if not fact:
        sys.exit(f"not so: {what}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(server, url):
    for _ in range(600):
        check(server.poll() is None, "the server runs")
        try:
            return urllib.request.urlopen(url + "/moto-api/", timeout=5)
        except Exception:
            time.sleep(0.1)
    sys.exit("moto's server did not start within a minute")


def test(folder, url):
    settings = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    iam = boto3.client("iam", **settings)  # these three calls are not verified
    iam.create_user(UserName="u")
    key = iam.create_access_key(UserName="u")["AccessKey"]
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="u", PolicyName="p", PolicyDocument=json.dumps(policy))
    settings |= dict(aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
    s3 = boto3.client("s3", **settings)
    s3.create_bucket(Bucket="bucket")
    machine = {"S3_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
               "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"], "XDG_CACHE_HOME": str(folder / "one")}

    def ours(*arguments, fails=False, **variables):
        result = subprocess.run([program, *map(str, arguments)], env=os.environ | machine | variables, text=True,
                                capture_output=True, timeout=300)
        check((result.returncode != 0) == fails, f"{arguments} ended with {result.returncode}: {result.stderr}")
        return result.stdout if not fails else result.stderr

    def objects(prefix):
        return {one["Key"]: one["Size"] for page in s3.get_paginator("list_objects_v2").paginate(
            Bucket="bucket", Prefix=prefix) for one in page.get("Contents", [])}

    listed = ours("store", "s3://bucket/some/folder", folder)
    seen = objects("some/folder/")
    check(seen == {f"some/folder/{line.rsplit(' ', 1)[0]}": int(line.rsplit(" ", 1)[1]) for line in listed.splitlines()},
          f"boto3 lists what we list: {seen} {listed}")
    check(len(seen) == 3, f"three files are left: {seen}")
    body = s3.get_object(Bucket="bucket", Key="some/folder/a/long")["Body"].read()
    check(hashlib.sha256(body).digest() == hashlib.sha256((folder / "long").read_bytes()).digest(),
          "boto3 reads what was sent in parts")
    mark = s3.head_object(Bucket="bucket", Key="some/folder/a/long")["Metadata"].get("libcomposer-upload", "")
    check(len(mark) == 16, f"the object that was sent in parts has the mark of its upload: {mark}")
    check(not s3.list_multipart_uploads(Bucket="bucket").get("Uploads"), "no parts are left")

    wrong = ours("list", "s3://bucket/some", AWS_SECRET_ACCESS_KEY="wrongsecret")
    check("403 SignatureDoesNotMatch" in wrong and "check the credentials" in wrong, f"a wrong secret is told: {wrong}")
    check("wrongsecret" not in wrong, "the secret is not")
    check("403 InvalidAccessKeyId" in ours("list", "s3://bucket/some", AWS_ACCESS_KEY_ID="AKIANOBODY"), "an unknown key")
    check("404 NoSuchBucket" in ours("list", "s3://no-such-bucket/some"), "an unknown bucket is told")
    unsafe = ours("run", "s3://bucket/runs/wrong", "1ep", fails=True, AWS_SECRET_ACCESS_KEY="wrongsecret")
    check("SignatureDoesNotMatch" in unsafe and "wrongsecret" not in unsafe, f"a run with a wrong secret fails: {unsafe}")

    whole = ours("run", "s3://bucket/runs/whole", "4ep").splitlines()
    ours("run", "s3://bucket/runs/two", "2ep")
    again = ours("run", "s3://bucket/runs/two", "4ep", XDG_CACHE_HOME=str(folder / "other")).splitlines()
    check(again[0].endswith("/ep2-ba8"), f"the other machine resumed from the bucket: {again}")
    check(whole[1] == again[1] and whole[1].startswith("weights xxh3:"), f"the weights are equal: {whole} {again}")
    kept = sorted(name for name in objects("runs/two/") if name.endswith("manifest.json"))
    check(kept == ["runs/two/ep3-ba12/manifest.json", "runs/two/ep4-ba16/manifest.json"], f"two are kept: {kept}")
    check(len(objects("runs/two/")) == 6, "nothing is left of the others")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    url = f"http://127.0.0.1:{free_port()}"
    environment = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "3",
                                "PYTHONPATH": os.pathsep.join([extra, os.environ.get("PYTHONPATH", "")])}
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rsplit(":", 1)[1]],
                                  env=environment, stdout=log, stderr=log)
        try:
            wait_for(server, url)
            test(folder, url)
        finally:
            server.terminate()
            server.wait()
print("S3: moto verified every signature, and boto3 reads what was stored")
