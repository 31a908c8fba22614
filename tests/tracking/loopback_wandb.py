"""A W&B server on loopback, for tests: the real client talks to it over real sockets.

It answers what `wandb.init`, `log`, `finish`, `wandb sync` and `wandb.Api` send, and keeps what it
is told in memory. It shows that our client code and the traffic are right; it says nothing about
the real server's rules or its pages.

    with LoopbackWandb() as server:
        subprocess.run([...], env={**os.environ, **server.environment()})
        server.runs["local/project/run-id"].summary
    assert not server.unknown  # operations of a newer client that are not answered here
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import loopback_views  # noqa: F401  # importing it registers its operations
from loopback_graphql import OPERATIONS
from loopback_store import LoggedRun, Store

API_KEY = "0" * 40

_STREAM = re.compile(r"/files/([^/]+/[^/]+/[^/]+)/file_stream")
_STORAGE = re.compile(r"/storage/([^/]+/[^/]+/[^/]+)/(.+)")
_OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")


class LoopbackWandb:
    """The server; it listens from construction until `close`.

    Attributes:
        url: base URL of the server.
        requests: what was asked, in order: the operation's name, or method and path.
        unknown: GraphQL operations that were asked and are not known.
        errors: exceptions inside the server.
        pages: number of `Runs` listings, for tests that count calls.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[str] = []
        self.unknown: list[str] = []
        self.errors: list[str] = []
        self._lock = threading.RLock()
        self._answering = threading.Event()
        self._answering.set()
        self._closed = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                return None

            def handle_any(self) -> None:
                server._handle(self)

            do_GET = do_POST = do_PUT = do_HEAD = handle_any  # noqa: N815  # names set by the base

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                return None  # clients reset idle connections

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = self.store.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> LoopbackWandb:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def runs(self) -> dict[str, LoggedRun]:
        return self.store.runs

    @property
    def pages(self) -> int:
        return self.requests.count("Runs")

    def environment(self) -> dict[str, str]:
        """The variables that send a W&B client here."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": API_KEY}

    def hang(self) -> None:
        """From here on, accept every request and answer none."""
        self._answering.clear()

    def close(self) -> None:
        """Stop listening, and drop the connections that wait for an answer."""
        if not self._closed:
            self._closed = True
            self._http.shutdown()
            self._http.server_close()
            self._answering.set()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = _body(request)
        self._answering.wait()
        if self._closed:
            request.close_connection = True
            return
        with self._lock:
            try:
                status, answer = self._answer(request.command, request.path, body)
            except Exception as error:
                self.errors.append(f"{request.path}: {error!r}")
                status, answer = 500, b""
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer)

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        path = unquote(urlsplit(path).path)
        if path == "/graphql":
            return 200, json.dumps(self._graphql(json.loads(body))).encode()
        self.requests.append(f"{method} {path}")
        if match := _STREAM.fullmatch(path):
            self.store.append(match[1], json.loads(body))
            return 200, b'{"limits": {}}'
        if match := _STORAGE.fullmatch(path):
            files = self.store.runs[match[1]].files
            if method == "PUT":
                files[match[2]] = body
                return 200, b"{}"
            if match[2] in files:
                return 200, files[match[2]]
        return 404, b"{}"

    def _graphql(self, request: dict[str, Any]) -> dict[str, Any]:
        match = _OPERATION.search(request["query"])
        name = match[1] if match else request["query"]
        self.requests.append(name)
        if name not in OPERATIONS:
            self.unknown.append(name)
            return {"errors": [{"message": f"unknown operation {name}"}]}
        return {"data": OPERATIONS[name](self.store, request.get("variables") or {})}


def _body(request: BaseHTTPRequestHandler) -> bytes:
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    if request.headers.get("Transfer-Encoding") == "chunked":
        while size := int(request.rfile.readline().split(b";")[0], 16):
            body += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
    if request.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    return body
