"""Tokens that reach the places of a job only; a proxy evaluates their boundaries as Google does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given, settings, strategies as st
from tests.faults import fake_gcs
from tests.faults.http_proxy import serving
from tests.faults.strict_gcs import Refused, StrictGcs
from tests.gateway.stores.all_verbs import COPYING, read_all, write_all

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    CredentialsTooWide,
    PermissionDenied,
    Unauthenticated,
)
from skyplane_gateway.common.objects import Credentials, ObjectAttributes
from skyplane_gateway.stores import ObjectStore, Reach, StoreSpec, limited_credentials
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.gcs import credentials
from skyplane_gateway.stores.gcs.limited_credentials import access_boundary, quoted
from skyplane_gateway.stores.registry import open_without_retries

OWN: Final = "in/$*?'\"\\日/"
WHOLE: Final = Credentials({"access_token": "whole", "expires_at": "4102444800"})
_LISTED: Final = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_TERM: Final = re.compile(
    rf"(?P<what>resource\.name|{re.escape(_LISTED)})"
    rf"(?:\.startsWith\((?P<start>{_STRING})\)| == (?P<whole>{_STRING}))(?: \|\| |\Z)"
)
_OBJECT: Final = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+?)(/compose)?")
_UPLOAD: Final = re.compile(r"/upload/storage/v1/b/([^/]+)/o")
_LISTING: Final = re.compile(r"/storage/v1/b/([^/]+)/o")
_ROLES: Final = {
    "inRole:roles/storage.objectViewer": {"get", "list"},
    "inRole:roles/storage.objectUser": {"get", "list", "create", "delete"},
}


def is_true(expression: str, name: str, listed: str) -> bool:
    """Evaluates the part of the Common Expression Language that boundaries have."""
    terms, end = [], 0
    for found in _TERM.finditer(expression):
        assert found.start() == end, expression
        end = found.end()
        value = name if found["what"] == "resource.name" else listed
        start, whole = (text and json.loads(text) for text in (found["start"], found["whole"]))
        terms.append(value.startswith(start) if start is not None else value == whole)
    assert end == len(expression), expression
    return any(terms)


def allows(boundary: Mapping[str, Any], verb: str, bucket: str, key: str, listed: str = "") -> bool:
    for rule in boundary["accessBoundary"]["accessBoundaryRules"]:
        name = f"projects/_/buckets/{bucket}"
        is_there = rule["availableResource"] == f"//storage.googleapis.com/{name}"
        name = f"{name}/objects/{key}" if key else name
        has_verb = any(verb in _ROLES[role] for role in rule["availablePermissions"])
        condition = rule.get("availabilityCondition")
        holds = condition is None or is_true(condition["expression"], name, listed)
        if is_there and has_verb and holds:
            return True
    return False


class BoundedGcs(StrictGcs):
    """As its base; holds tokens to their boundaries.

    Attributes:
        boundaries: token -> its boundary; other tokens may do everything.
    """

    boundaries: dict[str, Any]

    def carry_out(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        token = (headers.get("Authorization") or "").removeprefix("Bearer ")
        if boundary := self.boundaries.get(token):
            for asked in _asked(method, target, body):
                if not allows(boundary, *asked):
                    raise Refused(403, "forbidden", "does not have storage.objects access")
        return super().carry_out(method, target, headers, body)


def _asked(method: str, target: str, body: bytes) -> Iterator[tuple[str, ...]]:
    """(verb, bucket, key, prefix of a listing) of a request."""
    path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
    if found := _UPLOAD.fullmatch(path):
        yield "create", unquote(found[1]), query["name"][0]
    elif found := _LISTING.fullmatch(path):
        yield "list", unquote(found[1]), "", query.get("prefix", [""])[0]
    elif found := _OBJECT.fullmatch(path):
        bucket, key = unquote(found[1]), unquote(found[2])
        verb = "create" if found[3] else {"GET": "get", "DELETE": "delete"}[method]
        yield verb, bucket, key
        for row in json.loads(body).get("sourceObjects", ()) if found[3] else ():
            yield "get", bucket, row["name"]


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoundedGcs]:
    try:
        with fake_gcs.running(tmp_path_factory.mktemp("fake-gcs") / "log") as url:
            proxy = BoundedGcs(url, write_s=0)
            proxy.boundaries = {}
            with serving(proxy):
                for name in ("places", "others"):
                    fake_gcs.create_bucket(url, name)
                    store = open_without_retries(spec_of(proxy, name), WHOLE)
                    for key in (f"{OWN}a", "other/a"):
                        store.put(key, b"body")
                yield proxy
    except fake_gcs.Unavailable as error:
        pytest.skip(str(error))


def spec_of(gcs: BoundedGcs, bucket: str = "places") -> StoreSpec:
    return StoreSpec("gcs", bucket, endpoint_url=gcs.url)


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The service of tokens: `answer`, `status`, and the boundaries that were sent."""
    told: dict[str, Any] = {"status": 200, "boundaries": []}

    class Answer:
        headers: Final[dict[str, str]] = {}

        def __init__(self) -> None:
            self.status = told["status"]
            found = told.get("answer", {"access_token": "limited", "expires_in": 3600})
            self.data = json.dumps(found).encode()

    def send(url: str, method: str, headers: Any, body: bytes) -> Answer:
        assert (url, method) == ("https://sts.googleapis.com/v1/token", "POST")
        fields = parse_qs(body.decode())
        assert fields["subject_token"] == ["whole"]
        told["boundaries"].append(json.loads(unquote(fields["options"][0])))
        return Answer()

    monkeypatch.setattr(credentials, "Request", lambda: send)
    return told


def upload(store: ObjectStore, key: str) -> None:
    upload_id = store.create_upload(key)
    part = store.put_part(key, upload_id, 1, b"x", offset=0, crc32c=crc32c(b"x"))
    store.complete_upload(key, upload_id, [part], size_bytes=1)


def is_allowed(call: Callable[[], Any]) -> bool:
    try:
        call()
    except PermissionDenied:
        return False
    return True


#: What a gateway tries -> in which bucket, and whether sources and sinks may.
ATTEMPTS: Final[dict[str, tuple[str, Callable[[ObjectStore], Any], bool, bool]]] = {
    "read its own": ("places", lambda store: store.head(f"{OWN}a"), True, True),
    "list its own": ("places", lambda store: list(store.list(OWN)), True, True),
    "write its own": ("places", lambda store: store.put(f"{OWN}b", b""), False, True),
    "upload its own": ("places", lambda store: upload(store, f"{OWN}c"), False, True),
    "delete its own": ("places", lambda store: store.delete(f"{OWN}b"), False, True),
    "read another": ("places", lambda store: store.head("other/a"), False, False),
    "list another": ("places", lambda store: list(store.list("other/")), False, False),
    "list all": ("places", lambda store: list(store.list("")), False, False),
    "write another": ("places", lambda store: store.put("other/b", b""), False, False),
    "delete another": ("places", lambda store: store.delete("other/a"), False, False),
    "read another bucket": ("others", lambda store: store.head(f"{OWN}a"), False, False),
    "write another bucket": ("others", lambda store: store.put(f"{OWN}b", b""), False, False),
}


@pytest.mark.parametrize("writes", [False, True])
def test_a_token_reaches_its_places_only(
    gcs: BoundedGcs, exchanged: dict[str, Any], writes: bool
) -> None:
    found = limited_credentials(WHOLE, [Reach(StoreSpec("gcs", "places"), (OWN,), writes=writes)])
    assert found["access_token"] == "limited"
    (gcs.boundaries["limited"],) = exchanged["boundaries"]
    got = {}
    for name, (bucket, call, *_) in ATTEMPTS.items():
        got[name] = is_allowed(partial(call, open_without_retries(spec_of(gcs, bucket), found)))
    assert got == {name: row[2 + writes] for name, row in ATTEMPTS.items()}


@pytest.mark.parametrize("writes", [False, True])
def test_a_token_allows_all_that_the_store_sends(
    gcs: BoundedGcs, exchanged: dict[str, Any], writes: bool
) -> None:
    reaches = [Reach(StoreSpec("gcs", "places"), (OWN,), writes=writes)]
    found = limited_credentials(WHOLE, [*reaches, Reach(StoreSpec("gcs", "others"), (OWN,))])
    (gcs.boundaries["limited"],) = exchanged["boundaries"]
    store = open_without_retries(spec_of(gcs), found)
    if not writes:
        read_all(store, OWN, f"{OWN}a")
        return
    info = open_without_retries(spec_of(gcs, "others"), WHOLE).head(f"{OWN}a")
    source = CopySource(spec_of(gcs, "others"), info.key, info.etag, 0, info.size_bytes)
    attributes = ObjectAttributes(metadata=(("a", "b"),))
    assert write_all(store, OWN, attributes, source) == COPYING


def test_a_token_without_an_end_of_its_own_has_that_of_its_source(
    exchanged: dict[str, Any],
) -> None:
    exchanged["answer"] = {"access_token": "limited"}
    found = limited_credentials(WHOLE, [Reach(StoreSpec("gcs", "places"), (OWN,))])
    assert dict(found) == {"access_token": "limited", "expires_at": WHOLE["expires_at"]}


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (400, {"error": "invalid_grant", "error_description": "no"}, CredentialsTooWide),
        (503, {"error": {"code": 503, "message": "later"}}, Unauthenticated),
    ],
)
def test_what_gets_no_limited_token(
    exchanged: dict[str, Any], status: int, answer: Any, error: type[Exception]
) -> None:
    exchanged.update(status=status, answer=answer)
    with pytest.raises(error):
        limited_credentials(WHOLE, [Reach(StoreSpec("gcs", "places"), (OWN,))])


def test_emulators_get_the_given_token(gcs: BoundedGcs) -> None:
    assert limited_credentials(WHOLE, [Reach(spec_of(gcs), (OWN,))]) is WHOLE


KEYS: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@settings(deadline=None)
@given(KEYS, KEYS, KEYS)
def test_boundaries_hold_the_keys_of_their_places_and_no_others(
    folder: str, key: str, other: str
) -> None:
    spec, folder = StoreSpec("gcs", "b"), f"{folder}/"
    boundary = access_boundary([Reach(spec, (folder,), (key,))]).to_json()
    for inside in (folder + other, key):
        assert allows(boundary, "get", "b", inside)
        assert allows(boundary, "list", "b", "", inside)
    assert allows(boundary, "get", "b", other) is (other == key or other.startswith(folder))
    assert not allows(boundary, "list", "b", "", "")


@given(KEYS)
def test_a_literal_is_one_line_of_its_text(text: str) -> None:
    assert re.fullmatch(_STRING, quoted(text))
    assert json.loads(quoted(text)) == text
