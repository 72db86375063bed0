"""A local OpenAI-compatible server that answers as a test tells it to, faults included.

`answer(request, number)` gets the decoded request and the number of the call (from 0) and returns a `Reply`. Runs in a
thread of the test's process, on a free port of this machine.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """`body` as it is sent: an object (JSON) or text. `hang_s` waits first; `drip` sends blanks for ever."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    drip: bool = False
    cut: bool = False


def says(text: str, *, finish: str = "stop", tokens: tuple[int, int] = (100, 10), **message: Any) -> Reply:
    return Reply(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "stub",
            "choices": [
                {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
            ],
            "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
        }
    )


def calls(*named: tuple[str, Any], text: str = "") -> Reply:
    """Tool calls by the API; arguments that are no text are sent as JSON text."""
    made = [
        {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
        }
        for i, (name, a) in enumerate(named)
    ]
    return says(text, finish="tool_calls", tool_calls=made)


def failure(status: int, message: str = "no", **headers: str) -> Reply:
    return Reply({"error": {"message": message}}, status, {k.replace("_", "-"): v for k, v in headers.items()})


@dataclass
class Stub:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@contextmanager
def serve(answer: Callable[[dict[str, Any], int], Reply]) -> Iterator[Stub]:
    over = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(stub.requests)
                stub.requests.append(asked)
                stub.times.append(time.monotonic())
            reply = answer(asked, number)
            if over.wait(reply.hang_s):
                return
            if reply.cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            kind = "text/html" if isinstance(reply.body, str) else "application/json"
            self.send_response(reply.status)
            for name, value in {"content-type": kind, **reply.headers}.items():
                self.send_header(name, value)
            if reply.drip:
                self.send_header("connection", "close")
                self.end_headers()
                while not over.wait(0.05):
                    try:
                        self.wfile.write(b" ")
                        self.wfile.flush()
                    except OSError:
                        return
            self.send_header("content-length", str(len(data.encode())))
            self.end_headers()
            self.wfile.write(data.encode())

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Clients that went away are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    stub = Stub(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
