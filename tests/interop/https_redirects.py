#!/usr/bin/env python3
"""Downloads over HTTPS, with redirects: those to HTTP, which would send in the clear what was asked for encrypted, are
refused before the other server is asked.

https_redirects.py COMPOSER     COMPOSER is the program `composer`. Ends with 77 (skipped) without the program openssl.
"""
import http.server
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading

if shutil.which("openssl") is None:
    print("SKIPPED, so no redirect is followed: there is no openssl to make a certificate")
    sys.exit(77)

HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + b"\0\0\x80\x3f"


class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        target = self.server.redirects.get(self.path)
        there = self.path == "/w.safetensors"
        self.send_response(302 if target else 200 if there else 404)
        if target:
            self.send_header("Location", target)
        body = WEIGHTS if there else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


def serve(context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.asked, server.redirects = [], {}
    server.url = f"http{'s' if context else ''}://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def inspect(url, **more):
    environment = dict(os.environ, no_proxy="localhost", NO_PROXY="localhost", **more)
    done = subprocess.run([sys.argv[1], "inspect", url], env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def check(fact, what):
    if not fact:
        sys.exit(f"not so: {what}")


with tempfile.TemporaryDirectory() as name:
    certificate, key = pathlib.Path(name, "certificate.pem"), pathlib.Path(name, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    plain, encrypted = serve(), serve(context)
    file = "/w.safetensors"
    encrypted.redirects = {"/same" + file: encrypted.url + file, "/down" + file: plain.url + file}
    plain.redirects = {"/up" + file: encrypted.url + file}
    trusted = {"CURL_CA_BUNDLE": str(certificate)}

    for url in (encrypted.url, encrypted.url + "/same", plain.url + "/up"):
        code, said = inspect(url + file, **trusted)
        check(code == 0 and "safetensors" in said, f"{url} is downloaded: {said}")
    plain.asked.clear()
    code, said = inspect(encrypted.url + "/down" + file, **trusted)
    check(code != 0, f"a redirect from https to http is an error: {said}")
    check(not plain.asked, f"the server that it leads to is not asked: {plain.asked}")
    code, said = inspect(encrypted.url + file)
    check(code != 0 and "CURL_CA_BUNDLE" in said, f"a server of an unknown authority is refused, with a remedy: {said}")
print("redirects are followed where they stay encrypted")
