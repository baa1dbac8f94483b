"""A real HTTP S3 for tests: moto's server, and between it and the client a proxy that makes faults
when it is told to.

    with s3_server() as (proxy, client):
        config["backend"]["cache_dir"] = f"s3://{BUCKET}/cache"
        config["backend"]["cache_credentials"] = proxy.options()
        proxy.expect(Fault("503", "GET", "train/"))

The proxy also lets one request change the bucket at a time: moto looks whether an object is there
and then puts it, where a store does both at once. Needs moto[server] and s3fs.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "bucket"
KEY, SECRET = "canary-key-4711", "canary-secret-0815"
"""Credentials that no other text holds, so that a test can look for them everywhere."""

ANSWERS = {
    "503": (
        503,
        b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
    ),
    "expired": (
        400,
        b"<Error><Code>ExpiredToken</Code><Message>The provided token has "
        b"expired.</Message></Error>",
    ),
    "denied": (
        403,
        b"<Error><Code>AccessDenied</Code><Message>Access Denied to "
        + SECRET.encode()
        + b"</Message></Error>",
    ),
    "501": (
        501,
        b"<Error><Code>NotImplemented</Code><Message>A header implies no such "
        b"thing.</Message></Error>",
    ),
}


@dataclass
class Fault:
    """What happens to the next `times` requests of a method whose path holds `path`.

    kind: "503", "501", "expired" and "denied" answer instead of the store; "reset" breaks off in
    the middle of the store's body, "lost" instead of its answer; "slow" waits `seconds` before it
    asks the store; "unconditional" takes the condition off a put.
    """

    kind: str
    method: str = "GET"
    path: str = ""
    times: int = 1
    seconds: float = 0.0


@dataclass
class Proxy:
    """url: the endpoint as a client sees it. seen: (method, path) of every request. faults: what is
    to come.

    pause: called with (method, path, before) when a request is about to reach the store and again
    when it was carried out but not yet answered, for tests that stop or kill somebody there."""

    store: tuple[str, int]
    url: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pause: Callable[[str, str, bool], None] | None = None

    def options(self, **more: Any) -> dict[str, Any]:
        """Credentials that lead here."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": self.url, **more}

    def environment(self) -> dict[str, str]:
        """The same as variables of the environment."""
        given = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "ENDPOINT_URL": self.url}
        return {
            f"AWS_{name}": value for name, value in {**given, "DEFAULT_REGION": "us-east-1"}.items()
        }

    def expect(self, *faults: Fault) -> None:
        """These faults from now on, and no others; `seen` starts again."""
        with self.lock:
            self.faults[:], self.seen[:] = faults, []

    def count(self, method: str, part: str = "") -> int:
        """Requests of a method whose path holds `part`."""
        return sum(each == method and part in path for each, path in self.seen)

    def take(self, method: str, path: str) -> Fault:
        """Note a request; the fault that it meets, or one that does nothing."""
        with self.lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault.times > 0 and method == fault.method and fault.path in path:
                    fault.times -= 1
                    return fault
        return Fault("")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        proxy, body = self.server.proxy, self._body()
        fault = proxy.take(self.command, self.path)
        if proxy.pause is not None:
            proxy.pause(self.command, self.path, True)
        if fault.kind in ANSWERS:
            status, content = ANSWERS[fault.kind]
            self._answer(status, {}, content)
            return
        if fault.kind == "slow":
            time.sleep(fault.seconds)
        status, headers, content = self._forward(proxy, body, fault)
        if proxy.pause is not None:
            proxy.pause(self.command, self.path, False)
        if fault.kind == "reset":
            self._head(status, headers, len(content))
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
        if fault.kind in ("reset", "lost"):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(status, headers, content)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _forward(
        self, proxy: Proxy, body: bytes, fault: Fault
    ) -> tuple[int, dict[str, str], bytes]:
        dropped = {
            "transfer-encoding",
            "expect",
            *(["if-none-match"] if fault.kind == "unconditional" else []),
        }
        kept = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        with proxy.lock if self.command != "GET" else nullcontext():
            connection = http.client.HTTPConnection(*proxy.store, timeout=60)
            connection.request(
                self.command, self.path, body, {**kept, "Content-Length": str(len(body))}
            )
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
        return answer.status, dict(answer.getheaders()), content

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        told = headers.get("Content-Length", length) if self.command == "HEAD" else length
        self.send_header("Content-Length", str(told))
        self.end_headers()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self._head(status, headers, len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, *_: Any) -> None:
        """Nothing: requests are in `seen`."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: Proxy

    def handle_error(self, *_: Any) -> None:
        """Nothing: a client that went away is what such tests are about."""


def fresh(proxy: Proxy, client: Any) -> None:
    """Empty the bucket, and forget faults, pause and what was seen, for a test that shares them
    with others."""
    proxy.expect()
    proxy.pause = None
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for each in page.get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=each["Key"])


@contextmanager
def s3_server() -> Iterator[tuple[Proxy, Any]]:
    """A store with the empty bucket BUCKET in it: (its proxy, a boto3 client that goes around
    the proxy)."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    store = moto.get_host_and_port()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.proxy = proxy = Proxy(store, f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    around = {
        "aws_access_key_id": "around",
        "aws_secret_access_key": "around",
        "region_name": "us-east-1",
    }
    client = boto3.client("s3", endpoint_url=f"http://{store[0]}:{store[1]}", **around)
    client.create_bucket(Bucket=BUCKET)
    try:
        yield proxy, client
    finally:
        server.shutdown()
        server.server_close()
        moto.stop()
        client.close()
