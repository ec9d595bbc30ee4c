"""A real S3 server (SeaweedFS) that can be killed, and a proxy that spoils some of its answers."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import obstore
from obstore.store import S3Store

BUCKET = "region"
KEYS = {"owner": ("owner", "owner-secret"), "reader": ("reader", "reader-secret")}
SKEWED = (
    b"<?xml version='1.0'?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference "
    b"between the request time and the current time is too large.</Message></Error>"
)


def find_program(name: str) -> str | None:
    """A program on the path, or beside the Python that runs the tests, which may not be on it."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def free_port() -> int:
    """A port that is free, and so is the one of its gRPC, 10000 above."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port < 50_000:
                try:
                    two.bind(("127.0.0.1", port + 10_000))
                except OSError:
                    continue
                return port


class Server:
    """`weed mini` over a folder: killed, it is found again with what it had."""

    def __init__(self, folder: Path, *, anybody: bool = False) -> None:
        self.folder = folder
        identities = [
            {
                "name": name,
                "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": ["Admin"] if name == "owner" else ["Read", "List"],
            }
            for name, (key, secret) in KEYS.items()
        ]
        if anybody:
            identities.append({"name": "anonymous", "actions": ["Admin"]})
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        names = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")
        self.ports = {name: free_port() for name in (*names, "s3.port.iceberg", "s3.port.lance")}
        self.address = f"127.0.0.1:{self.ports['s3.port']}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            find_program("weed") or "weed", "mini", f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false",
            f"-s3.config={self.folder / 's3.json'}", "-s3.autoCreateBucket=false",
            f"-bucket={BUCKET}", *(f"-{name}={port}" for name, port in self.ports.items()),
        ]  # fmt: skip
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                obstore.put(self.store(), "ready", b"")
                return
            except Exception:  # not yet
                time.sleep(0.3)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def store(self, prefix: str = "") -> S3Store:
        key, secret = KEYS["owner"]
        return S3Store(
            BUCKET, prefix=prefix or None, endpoint=f"http://{self.address}", region="us-east-1",
            access_key_id=key, secret_access_key=secret, client_options={"allow_http": True},
            retry_config={"max_retries": 10},  # killed, it needs a moment to find its volumes
        )  # fmt: skip

    def tree(self, prefix: str) -> dict[str, bytes]:
        """Every object under a prefix."""
        store = self.store(prefix)
        names = [found["path"] for page in obstore.list(store) for found in page]
        return {name: bytes(obstore.get(store, name).bytes()) for name in names}


class Proxy(ThreadingHTTPServer):
    """Hands requests on to a server, and spoils a share of them."""

    daemon_threads = True

    def __init__(self, server: Any, share: float = 0.0, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to, self.share = server, share
        self.random, self.spoilt, self.seen = random.Random(seed), 0, 0
        self.skewed = False
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def refused(self, command: str, headers: dict[str, str]) -> int:
        """The status for a request that goes no further; 0 hands it on."""
        return 0

    def translated(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers that are handed on."""
        return headers

    answers: ClassVar[dict[int, bytes]] = {}
    """What is said with a status that `refused` gives."""

    def handle_error(self, request, client_address) -> None:  # clients that went away
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.seen += 1
        fault = ""
        if proxy.random.random() < proxy.share:
            proxy.spoilt += 1
            fault = proxy.random.choice(["busy", "slow", "cut", "lost"])
        if proxy.skewed:
            return self._answer(403, {}, SKEWED)
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = proxy.refused(self.command, headers)
        if status:
            return self._answer(status, {}, proxy.answers[status])
        if fault == "busy":
            return self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if fault == "slow":
            time.sleep(1)
        if fault == "cut":  # before the server has seen it
            return self._hang_up()
        onward = http.client.HTTPConnection(proxy.to.address, timeout=30)
        try:
            onward.request(self.command, self.path, body, proxy.translated(headers))
            reply = onward.getresponse()
            content = reply.read()
        except OSError:
            return self._hang_up()
        if fault == "lost":  # after the server has done it
            return self._hang_up()
        return self._answer(reply.status, dict(reply.getheaders()), content)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        length = str(len(content))
        for name, value in headers.items():
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass
