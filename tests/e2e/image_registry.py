"""A registry on a loopback address that offers one image, for pulls only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve an image that `podman push IMAGE dir:FOLDER` wrote; its name with its digest.

    The digest is that of a list with an entry for this processor, as releases have it.
    """
    manifest = (folder / "manifest.json").read_bytes()
    kind = json.loads(manifest)["mediaType"]
    entry = {
        "mediaType": kind,
        "size": len(manifest),
        "digest": _digest(manifest),
        "platform": {"os": "linux", "architecture": _PROCESSORS[platform.machine()]},
    }
    listed = json.dumps({"schemaVersion": 2, "mediaType": _LIST, "manifests": [entry]}).encode()
    documents = {_digest(listed): (listed, _LIST), _digest(manifest): (manifest, kind)}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            what, _, digest = self.path.rpartition("/")
            content, kind = b"{}", "application/json"
            if what.endswith("/manifests"):
                content, kind = documents[digest]
            elif what.endswith("/blobs"):
                content = (folder / digest.removeprefix("sha256:")).read_bytes()
                kind = "application/octet-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}/skyplane-gateway@{_digest(listed)}"
        finally:
            server.shutdown()
            thread.join()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
