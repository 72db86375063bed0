"""A Hugging Face hub of one repository, org/small, on this machine; or one that takes connections and never answers."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "1234567890" * 4


@contextmanager
def hub(files: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a hub whose org/small has these files."""
    asked: dict[str, Any] = {
        "id": "org/small",
        "modelId": "org/small",
        "sha": COMMIT,
        "cardData": {"license": "mit"},
        "siblings": [{"rfilename": name, "size": len(data)} for name, data in files.items()],
    }
    tree = [
        {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        for name, data in files.items()
    ]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.startswith("/api/models/org/small/tree/"):
                self.answer(200, json.dumps(tree).encode())
            elif path.startswith("/api/models/org/small"):
                self.answer(200, json.dumps(asked).encode())
            elif path.startswith(f"/org/small/resolve/{COMMIT}/") and (name := path.rpartition("/")[2]) in files:
                etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
                self.answer(200, files[name], ETag=etag, X_Repo_Commit=COMMIT)
            else:
                self.answer(404, b"{}", X_Error_Code="RepoNotFound")

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def silent_hub() -> Iterator[str]:
    """Connections are made and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
