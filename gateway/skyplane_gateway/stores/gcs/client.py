"""Sends requests of one bucket, each once, with Google's credentials.

Requests that are rare go through Google's own client, by the same connections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import google.auth.transport.requests
import requests
from requests.adapters import HTTPAdapter

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    NotFound,
    PermissionDenied,
    StoreError,
)
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.gcs.credentials import google_credentials
from skyplane_gateway.stores.gcs.endpoints import is_google
from skyplane_gateway.stores.gcs.error_mapping import from_refusal, mapped
from skyplane_gateway.stores.gcs.requests import Urls
from skyplane_gateway.stores.options import check_options
from skyplane_gateway.stores.response_validation import (
    UNREADABLE,
    NoAnswer,
    joined,
    read_json,
    require,
    unavailable,
)
from skyplane_gateway.stores.server_clock import ServerClock

#: Any: google-auth's functions have no types.
_AuthorizedSession: Any = google.auth.transport.requests.AuthorizedSession

#: More than the gateway's threads for stores, so that no thread waits for a connection.
_CONNECTIONS: Final = 64
#: Waits for a connection, and for the next bytes of an answer or to be sent.
_TIMEOUT_S: Final = (10, 60)
_STEP_BYTES: Final = 64 << 10
#: Arguments of each verb of Google's client.
ONCE: Final[Mapping[str, Any]] = {"retry": None, "timeout": _TIMEOUT_S}


class GcsClient:
    """One bucket at one endpoint. Thread-safe.

    The platform's identity is looked up with the first request: it may ask a metadata server.
    """

    def __init__(self, spec: StoreSpec, credentials: Credentials | None) -> None:
        check_options(spec)
        self.spec = spec
        self.server_clock = ServerClock()
        self.urls = Urls(spec.endpoint_url, spec.bucket, spec.option("user_project"))
        self._given = credentials
        self.doing = spec.doing
        self._lock = threading.Lock()
        self._session: Any = None
        if credentials is not None:
            google_credentials(spec, credentials)

    def authorization(self) -> dict[str, str] | None:
        """The headers that identify a request; None while a thread has to get a token.

        Raises Unauthenticated.
        """
        with self._lock:
            if self._session is None and self._given is None and is_google(self.spec.endpoint_url):
                return None
        credentials = self._opened().credentials
        if not credentials.valid:
            return None
        headers: dict[str, str] = {}
        credentials.apply(headers)
        return headers

    def send(
        self,
        method: str,
        url: str,
        what: str,
        *,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        expected: tuple[int, ...] = (200,),
        stream: bool = False,
        has_checksum: bool = False,
    ) -> requests.Response:
        """The answer to one request; with `stream` its body is not read yet.

        Raises StoreError for any status but the expected ones.
        """
        with mapped(what):
            answer: requests.Response = self._opened().request(
                method,
                url,
                data=data,
                headers={"Accept-Encoding": "gzip", **(headers or {})},
                timeout=_TIMEOUT_S,
                allow_redirects=False,
                stream=stream,
            )
            self.server_clock.note(answer.headers.get("Date"))
            if answer.status_code in expected:
                return answer
            raise self._refused(answer, what, has_checksum=has_checksum)

    def send_for_json(
        self, method: str, url: str, what: str, kind: str, **more: Any
    ) -> dict[str, Any]:
        """As `send`, for an answer of the JSON API, which names its kind."""
        answer = self.send(method, url, what, **more)
        with mapped(what):
            return read_json(answer.content, kind)

    @contextmanager
    def sdk(self, what: str) -> Iterator[Any]:
        """The bucket of Google's own client, for one request, made with `ONCE`.

        Raises StoreError. That client takes long to import, so other requests do without.
        """
        from google.api_core.exceptions import GoogleAPICallError

        try:
            with mapped(what):
                yield self._sdk_bucket
        except GoogleAPICallError as error:
            raise self._refused(error.response, what) from error
        except UNREADABLE as error:
            raise unavailable(what, f"cannot be read ({type(error).__name__})") from error

    @cached_property
    def _sdk_bucket(self) -> Any:
        from google.cloud.storage import Client as SdkClient

        session = self._opened()
        sdk = SdkClient(
            # None: requests about objects need no project.
            project=None,
            credentials=session.credentials,
            _http=session,
            client_options={"api_endpoint": self.urls.base},
        )
        # Without this a thread of its own asks for the bucket, which may not be allowed.
        sdk._bucket_metadata_cache = None
        return sdk.bucket(self.spec.bucket, self.spec.option("user_project") or None)

    def _refused(
        self, answer: requests.Response, what: str, *, has_checksum: bool = False
    ) -> StoreError:
        is_renewable = self._given is not None and "expires_at" in self._given
        found = answer.status_code, answer.headers, answer.content
        return from_refusal(*found, what, is_renewable=is_renewable, has_checksum=has_checksum)

    def close(self) -> None:
        """The next request would open connections again."""
        with self._lock:
            if self._session is not None:
                self._session.close()

    def _opened(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = _session(self.spec, self._given)
            return self._session


def _session(spec: StoreSpec, credentials: Credentials | None) -> Any:
    found = google_credentials(spec, credentials)
    # A given token cannot be refreshed here: the orchestrator sends another.
    session = _AuthorizedSession(found, refresh_status_codes=(401,) if credentials is None else ())
    session.hooks["response"].append(_read_bounded)
    size = int(spec.option("connections", str(_CONNECTIONS)))
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=size, max_retries=0))
    return session


def _read_bounded(answer: requests.Response, *, stream: bool = False, **_: Any) -> None:
    """Read the body up to a limit, unless it is an object's. Raises NoAnswer."""
    if stream and answer.status_code < 300:
        return
    try:
        # requests has no public name for a body that was read.
        answer._content = joined(answer.iter_content(_STEP_BYTES))
    except NoAnswer:
        answer.close()
        raise


def bucket_region(spec: StoreSpec, credentials: Credentials | None = None) -> str | None:
    """The region of the bucket. 1 call.

    Raises:
        ConfigurationInvalid: the bucket is in several regions.
        PermissionDenied: the credentials may not look at the bucket; other leaves as usual.
        NotFound: there is no such bucket.
    """
    client = GcsClient(spec, credentials)
    what = f"asking for the region of gs://{spec.bucket}"
    try:
        url = client.urls.bucket(fields="kind,location,locationType")
        found = client.send_for_json("GET", url, what, "storage#bucket")
        with mapped(what):
            require(found, "location", "locationType")
    except PermissionDenied as error:
        raise PermissionDenied(
            f"{error.message}; grant storage.buckets.get (for example by the role Storage Bucket "
            "Viewer), or give this location its region, for example gcp:europe-west3"
        ) from error
    except NotFound as error:
        raise NotFound(f"{what}: there is no such bucket; check its name") from error
    finally:
        client.close()
    if found["locationType"] not in ("region", "zone"):
        raise ConfigurationInvalid(
            f"gs://{spec.bucket} is in the {found['locationType']} {found['location']}, not in one "
            "region; give the region near which its gateways are to run, for example "
            "gcp:europe-west3"
        )
    return str(found["location"]).lower()
