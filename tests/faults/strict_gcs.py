"""A proxy before fake-gcs-server that refuses what Google Cloud Storage refuses of writes.

It keeps these rules of the service, which the emulator does not know:

* an object without a class gets the default of its bucket;
* a compose request takes 1 to 32 sources, all of the class of the object that it makes
  (https://cloud.google.com/storage/docs/composite-objects, 2026-11);
* it honours `ifGenerationMatch`, and `deleteSourceObjects` removes the sources at once
  (https://docs.cloud.google.com/storage/docs/composing-objects, 2026-11);
* one name is written once a second (https://cloud.google.com/storage/quotas, 2026-11);
* a delete leaves a soft-deleted object, which is billed for seven days;
* requests have the methods, parameters and fields of Google's discovery document.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.faults.gcs_models import of_gcs
from tests.faults.http_proxy import serving

from strict_clouds.schemas import Violations

_MAX_SOURCES: Final = 32
_WRITE_S: Final = 1.0
_UPLOAD: Final = re.compile(r"/upload/storage/v1/b/([^/]+)/o")
_COMPOSE: Final = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/compose")
_REWRITE: Final = re.compile(r"/storage/v1/b/[^/]+/o/[^/]+/rewriteTo/b/([^/]+)/o/([^/]+)")
_LISTING: Final = re.compile(r"/storage/v1/b/([^/]+)/o")
_OBJECT: Final = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)")

#: Bucket and name.
Place = tuple[str, str]


class Refused(Exception):
    """The service answers with this status, reason and text."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        errors = [{"domain": "global", "reason": reason, "message": message}]
        error = {"code": status, "message": message, "errors": errors}
        self.body = json.dumps({"error": error}).encode()


class StrictGcs(ThreadingHTTPServer):
    """See the module.

    Args:
        write_s: the shortest time between writes of one name.

    Attributes:
        default_classes: bucket -> class of its new objects; STANDARD for others.
        soft_deleted: names of objects that a delete removed, each with its class.
        composed: number of sources of each compose request.
        violations: of the document; some make the end of `running` an error.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str, write_s: float = _WRITE_S) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._write_s = write_s
        self.upstream = urlsplit(upstream).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.default_classes: dict[str, str] = {}
        self.soft_deleted: list[tuple[str, str]] = []
        self.composed: list[int] = []
        self.violations = Violations()
        self.lock = threading.RLock()
        self._classes: dict[Place, str] = {}
        self._generations: dict[Place, str] = {}
        self._written_s: dict[Place, float] = {}

    def class_of(self, bucket: str, name: str) -> str:
        return self._classes[bucket, name]

    def let_a_second_pass(self) -> None:
        """For the rate of writes."""
        with self.lock:
            self._written_s.clear()

    def carry_out(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        """The store's answer: status, headers, body. Raises Refused."""
        with self.lock:
            self.violations.add(*of_gcs(method, target, headers, body))
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if method == "POST" and (found := _UPLOAD.fullmatch(path)):
            place = (unquote(found[1]), query["name"][0])
            return self._insert(place, target, headers, body)
        if method == "POST" and (found := _COMPOSE.fullmatch(path)):
            return self._compose((unquote(found[1]), unquote(found[2])), query, target, body)
        if method == "POST" and (found := _REWRITE.fullmatch(path)):
            return self._rewrite((unquote(found[1]), unquote(found[2])), target, headers, body)
        if method == "GET" and (found := _LISTING.fullmatch(path)):
            return self._list(unquote(found[1]), target, headers)
        if method == "DELETE" and (found := _OBJECT.fullmatch(path)):
            return self._delete((unquote(found[1]), unquote(found[2])), target, headers)
        return self._ask(method, target, headers, body)

    def _insert(self, place: Place, target: str, headers: Any, body: bytes) -> Any:
        self._paced(place)
        head, resource, rest = body.split(b"\r\n", 4)[:3], *body.split(b"\r\n", 4)[3:]
        described = self._classed(place[0], json.loads(resource))
        parts = (*head, json.dumps(described).encode(), rest)
        answer = self._ask("POST", target, headers, b"\r\n".join(parts))
        return self._noted(place, described["storageClass"], answer)

    def _compose(
        self, place: Place, query: Mapping[str, list[str]], target: str, body: bytes
    ) -> Any:
        asked = json.loads(body)
        sources = [(place[0], row["name"]) for row in asked["sourceObjects"]]
        described = self._classed(place[0], asked.get("destination", {}))
        self._paced(place)
        with self.lock:
            self._require_composable(sources, described["storageClass"])
            wanted = query.get("ifGenerationMatch", [None])[0]
            if wanted is not None and wanted != self._generations.get(place, "0"):
                raise Refused(412, "conditionNotMet", "At least one of the pre-conditions failed.")
            document = json.dumps({**asked, "destination": described}).encode()
            headers = {"Content-Type": "application/json"}
            answer = self._noted(
                place, described["storageClass"], self._ask("POST", target, headers, document)
            )
            if answer[0] == 200:
                self.composed.append(len(sources))
                for source in sources if asked.get("deleteSourceObjects") else ():
                    self._ask("DELETE", _target(source), {}, b"")
                    self._forget(source)
        return answer

    def _require_composable(self, sources: list[Place], made: str) -> None:
        if not 1 <= len(sources) <= _MAX_SOURCES:
            raise Refused(400, "invalid", f"The number of source components is {len(sources)}.")
        if any(source not in self._classes for source in sources):
            raise Refused(404, "notFound", "Not Found")
        others = {self._classes[source] for source in sources} - {made}
        if others:
            raise Refused(
                400,
                "invalid",
                f"Cannot compose object with destination storage class {made} from source "
                f"components that have different storage classes ({', '.join(sorted(others))})",
            )

    def _rewrite(self, place: Place, target: str, headers: Any, body: bytes) -> Any:
        self._paced(place)
        described = self._classed(place[0], json.loads(body or b"{}"))
        answer = self._ask("POST", target, headers, json.dumps(described).encode())
        return self._noted(place, described["storageClass"], answer, "resource")

    def _list(self, bucket: str, target: str, headers: Any) -> Any:
        status, fields, body = self._ask("GET", target, headers, b"")
        if status == 200:
            page = json.loads(body)
            for row in page.get("items", ()):
                # The emulator forgets the class of a rewrite.
                row["storageClass"] = self._classes.get((bucket, row["name"]), "STANDARD")
            body = json.dumps(page).encode()
        return status, fields, body

    def _delete(self, place: Place, target: str, headers: Any) -> Any:
        answer = self._ask("DELETE", target, headers, b"")
        if answer[0] in (200, 204) and place in self._classes:
            self.soft_deleted.append((place[1], self._classes[place]))
            self._forget(place)
        return answer

    def _classed(self, bucket: str, resource: dict[str, Any]) -> dict[str, Any]:
        usual = self.default_classes.get(bucket, "STANDARD")
        return {**resource, "storageClass": resource.get("storageClass") or usual}

    def _paced(self, place: Place) -> None:
        with self.lock:
            now = time.monotonic()
            if now - self._written_s.get(place, float("-inf")) < self._write_s:
                raise Refused(
                    429, "rateLimitExceeded", "The object exceeded the rate limit for mutations."
                )
            self._written_s[place] = now

    def _noted(self, place: Place, made: str, answer: Any, *inside: str) -> Any:
        status, headers, body = answer
        if status == 200:
            resource = json.loads(body)
            for name in inside:
                resource = resource[name]
            with self.lock:
                self._classes[place], self._generations[place] = made, str(resource["generation"])
        return status, headers, body

    def _forget(self, place: Place) -> None:
        self._classes.pop(place, None)
        self._generations.pop(place, None)

    def _ask(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        kept = {
            name: text
            for name, text in headers.items()
            if name.lower() not in ("content-length", "connection", "host")
        }
        with closing(HTTPConnection(self.upstream)) as store:
            store.request(method, target, body, {**kept, "Host": self.upstream})
            reply = store.getresponse()
            return reply.status, reply.getheaders(), reply.read()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StrictGcs

    def do_GET(self) -> None:
        target = self.requestline.split(" ")[1]
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            status, headers, answer = self.server.carry_out(
                self.command, target, self.headers, body
            )
        except Refused as refusal:
            status, headers, answer = refusal.status, (), refusal.body
        self.send_response_only(status)
        for name, text in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, text)
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_DELETE = do_HEAD = do_PATCH = do_POST = do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output quiet."""


def _target(place: Place) -> str:
    return f"/storage/v1/b/{quote(place[0])}/o/{quote(place[1], safe='')}"


@contextmanager
def running(upstream: str, write_s: float = _WRITE_S) -> Iterator[StrictGcs]:
    """A proxy that serves until the block ends."""
    proxy = StrictGcs(upstream, write_s)
    with serving(proxy):
        yield proxy
    proxy.violations.require_none()
