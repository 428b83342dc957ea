"""Builds botocore clients; reads the region of a bucket."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import botocore.session
import urllib3
from botocore import UNSIGNED, handlers
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.options import check_options, checksum_use
from skyplane_gateway.stores.response_validation import UNREADABLE, NoAnswer, joined, unavailable
from skyplane_gateway.stores.s3.body import send_in_blocks
from skyplane_gateway.stores.s3.error_mapping import StaleCredentials, status_of, translate
from skyplane_gateway.stores.s3.request_parameters import RequestParameters
from skyplane_gateway.stores.s3.sdk import BadAnswer, Parsers, descriptions, new_session

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_s3 import S3Client

#: Whether the requests of this thread ask for gzip; see `as_stored`.
_TAKES_GZIP: Final = ContextVar("takes_gzip", default=False)
#: Without this header, answers have no checksum of the object.
CHECKSUM_MODE: Final = "x-amz-checksum-mode"
#: More than the gateway's threads for stores, so that no thread waits for a connection.
DEFAULT_CONNECTIONS = 64
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
#: Clients are built one at a time, since botocore's loader is shared.
_BUILDING = threading.Lock()


def open_client(
    spec: StoreSpec, credentials: Credentials | None
) -> tuple[S3Client, botocore.session.Session]:
    """A thread-safe client, and the session with its credentials; makes no request."""
    check_options(spec)
    try:
        with _BUILDING:
            session = _session(credentials)
            if spec.option("anonymous") != "true":
                with answered_credentials():
                    session.get_credentials()
            # boto3 would add transfers in parts, which nothing here uses, and takes long to load.
            made = session.create_client(
                "s3",
                endpoint_url=spec.endpoint_url,
                region_name=spec.region or region_in(spec.bucket) or _own_region(session),
                config=_config(spec),
            )
    except BadAnswer as error:
        raise unavailable("reading the credentials of this process", error) from error
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationInvalid(f"cannot open the S3 store {spec.bucket!r}: {error}") from error
    client = cast("S3Client", made)
    # Else each body that looks like a file waits for an answer before it is sent.
    client.meta.events.unregister("before-call.s3", handlers.add_expect_header)
    # `sdk.Parsers` looks for errors in a 200, and calls nothing else an error 500.
    handler = getattr(handlers, "_handle_200_error", None)
    client.meta.events.unregister("before-parse.s3.*", handler)
    # Any: botocore has no public name for what sends requests.
    endpoint: Any = vars(made)["_endpoint"]
    endpoint.http_session = _BoundedSession(endpoint.http_session)
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"before-send.s3.{operation}", send_in_blocks)
    for operation in ("GetObject", "HeadObject"):
        client.meta.events.register(f"before-send.s3.{operation}", _ask_for_gzip)
    if checksum_use(spec) != "none":
        client.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
    RequestParameters(spec).register(client)
    if spec.option("anonymous") != "true":
        refresh_before_calls(client, session)
    return client, session


class _BoundedSession:
    """Sends requests as botocore's session does, and reads answers up to a limit."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.close = session.close

    def send(self, request: Any) -> Any:
        """Raises BotoCoreError. The body of an object is not read yet."""
        is_streamed, request.stream_output = request.stream_output, True
        answer = self._session.send(request)
        if is_streamed and answer.status_code < 300:
            return answer
        try:
            answer._content = joined(answer.raw.stream())
        except NoAnswer as error:
            answer.raw.close()
            raise BadAnswer(why=error) from error
        except urllib3.exceptions.HTTPError as error:
            raise HTTPClientError(error=error) from error
        return answer


def refresh_before_calls(client: Any, session: botocore.session.Session) -> None:
    """Have calls raise StaleCredentials, where botocore would raise a RuntimeError."""

    def refresh(**_: Any) -> None:
        with answered_credentials():
            frozen(session.get_credentials())

    client.meta.events.register("before-call", refresh)


def frozen(found: Any) -> Any:
    """botocore's credentials at this moment, refreshed; None for none. Raises StaleCredentials."""
    try:
        return None if found is None else found.get_frozen_credentials()
    except RecursionError:
        raise
    except RuntimeError as error:
        raise StaleCredentials from error


@contextmanager
def answered_credentials() -> Iterator[None]:
    """Raise BadAnswer where a service of credentials has answered something else.

    botocore takes any JSON and XML for an answer.
    """
    try:
        yield
    except (ResponseParserError, *UNREADABLE) as error:
        raise BadAnswer(why=f"has no credentials ({type(error).__name__})") from error


def _ask_for_checksum(params: dict[str, Any], **_: Any) -> None:
    """By the header: for the parameter `ChecksumMode`, botocore would read the body itself."""
    params["headers"][CHECKSUM_MODE] = "ENABLED"


@contextmanager
def as_stored() -> Iterator[None]:
    """Ask for gzip inside, so that objects with `Content-Encoding: gzip` are not decompressed.

    Some services decompress them otherwise: Cloudflare R2, and the XML API of Google Cloud Storage
    ("Transcoding of gzip-compressed files", 2026-11-26). They may compress other objects in turn,
    so this is for those of which another form was answered.
    """
    token = _TAKES_GZIP.set(True)
    try:
        yield
    finally:
        _TAKES_GZIP.reset(token)


def _ask_for_gzip(request: AWSPreparedRequest, **_: Any) -> None:
    """Not signed: Google's servers change this header on the way."""
    if _TAKES_GZIP.get():
        request.headers["Accept-Encoding"] = "gzip"


def _session(credentials: Credentials | None) -> botocore.session.Session:
    """A session per client, since a session caches what it reads from the environment."""
    session = new_session()
    data_path = session.get_config_variable("data_path")
    session.register_component("data_loader", descriptions(data_path))
    session.register_component("response_parser_factory", Parsers())
    if credentials is None:
        return session
    missing = [name for name in ("access_key_id", "secret_access_key") if not credentials.get(name)]
    if missing:
        raise ConfigurationInvalid(f"S3 credentials lack {' and '.join(missing)}")
    session.set_credentials(
        credentials["access_key_id"],
        credentials["secret_access_key"],
        credentials.get("session_token") or None,
    )
    return session


def _own_region(session: botocore.session.Session) -> str:
    """The region of this process, in the order of the AWS CLI.

    botocore does not read AWS_REGION, which the CLI and the other SDKs read first:
    https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-envvars.html (November 2026).
    """
    found = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    return found or "us-east-1"


def _config(spec: StoreSpec) -> Config:
    # Compatible servers seldom have a wildcard DNS name for their buckets.
    chosen = spec.option("addressing") or ("path" if spec.endpoint_url else "auto")
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=int(spec.option("connections", str(DEFAULT_CONNECTIONS))),
        # `open_store` retries: the SDK knows neither the bucket's limiter nor Retry-After.
        retries={"total_max_attempts": 1, "mode": "standard"},
        tcp_keepalive=True,
        # Bodies carry a CRC32C; SHA-256 as well costs five times the CPU of sending them.
        s3={
            "addressing_style": cast('Literal["auto", "virtual", "path"]', chosen),
            "payload_signing_enabled": spec.option("payload", "unsigned") == "signed",
        },
        # The store sends and checks its own checksums; botocore's would be a second pass.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    if spec.option("anonymous") == "true":
        return config.merge(Config(signature_version=UNSIGNED))
    return config


def region_in(bucket: str) -> str:
    """The region in the ARN of an access point; empty for other names and several regions."""
    return bucket.split(":")[3] if bucket.startswith("arn:") else ""


def bucket_region(spec: StoreSpec, credentials: Credentials | None = None) -> str | None:
    """The region of the bucket, or None where the store names none. 1 call, or none.

    The ARN of an access point has it. AWS names it in refusals too (301, 403), so the caller needs
    no permission.

    Raises:
        NotFound: no such bucket; other leaves of StoreError as usual.
    """
    if region := region_in(spec.bucket):
        return region
    what = f"asking for the region of {spec.place}"
    client, _ = open_client(spec, credentials)
    try:
        answer = client.head_bucket(Bucket=spec.bucket)
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
    except ClientError as error:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if status_of(error) == 404 or "x-amz-bucket-region" not in headers:
            raise translate(error, what) from error
    except BotoCoreError as error:
        raise translate(error, what) from error
    finally:
        client.close()
    return headers.get("x-amz-bucket-region")
