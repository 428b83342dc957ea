"""One end of a transfer: a location, and region tags.

All parsing of object URLs is here. `s3://`, `gs://`, `az://`, the names of Hadoop for Azure and
plain paths are taken literally, as the AWS CLI and rclone do (no percent-decoding: a key may
contain `%2B`); an `https://account.blob.core.windows.net/` address is an ordinary URL and is
decoded once.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from skyplane_gateway.common.errors import naming
from skyplane_gateway.common.schema import Document, check
from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.errors import ConfigurationInvalid, InvalidLocation

CLOUDS: Final = ("aws", "gcp", "azure")
LOCAL_CLOUD: Final = "local"
KNOWN_CLOUDS: Final = (*CLOUDS, LOCAL_CLOUD)

_REGION_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")

#: Most names to suggest for a mistyped region.
_SUGGESTIONS: Final = 3

#: Of an account's addresses: for blobs, and for the same blobs as files of Data Lake Storage.
_AZURE_HOST_SUFFIXES: Final = (".blob.core.windows.net", ".dfs.core.windows.net")

#: URL scheme -> kind of store, as `skyplane_gateway.stores` names it; also schemes of other tools.
_STORE_KINDS: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "azure", "abfss", "abfs", "wasbs", "wasb"), "azure"),
    "file": "file",
}
#: Schemes of Azure that name the account behind the container.
_ACCOUNT_LAST: Final = ("abfss", "abfs", "wasbs", "wasb")

_BUCKET_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
#: In place of a bucket of S3: the ARN of an access point, also of one on an Outpost, of several
#: regions, or with a function; with colons or slashes in its last part, as the AWS CLI takes it.
_ACCESS_POINT: Final = re.compile(
    r"(?P<bucket>arn:aws[a-z-]*:s3(-[a-z-]+)?:[a-z0-9-]*:[0-9]{12}"
    r"(:outpost[:/][a-zA-Z0-9-]+(?=[:/])|(?=:))[:/]accesspoint[:/][^:/]+)(/(?P<key>.*))?",
    re.DOTALL,
)

#: Kind of store -> the cloud of its region tags, by default.
_CLOUDS: Final = {"s3": "aws", "gcs": "gcp", "azure": "azure", "file": "local"}


@dataclass(frozen=True, slots=True)
class Location(Document, what="a location"):
    """A bucket and a prefix or key in it.

    Args:
        url: `s3://bucket/key`, `gs://bucket/key`, `az://account/container/key`,
            `abfss://container@account.dfs.core.windows.net/key`,
            `https://account.blob.core.windows.net/container/key`, `file:///path`
            or a plain path. A bucket of S3 may be the ARN of an access point. A path with a colon
            before its first slash needs `./` before it. `s3a`, `s3n`, `gcs`, `abfs`, `wasbs`,
            `wasb` and the host `dfs` are known, too.
        region: region tag (`aws:eu-west-3`) of the bucket; looked up when empty.
        endpoint_url: address of an S3-compatible service, a private endpoint or an emulator; empty
            for the cloud's own.
        credential_ref: the source of credentials (`profile:NAME`, `env:PREFIX`,
            `airflow:CONN_ID`); empty for the ambient ones. Never a secret.
        options: store options as text, for example `checksum=trusted`.

    A text that holds a Jinja template (`{{` or `{%`) is checked once it is rendered; a
    relative path whose first folder holds one is written with `./`.

    Raises InvalidLocation: the URL, region tag or endpoint is not valid.
    """

    url: str
    region: str = ""
    endpoint_url: str = ""
    credential_ref: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check(self)
        checks = {
            "url": self._check_url,
            "region": self._check_region,
            "endpoint_url": self._check_endpoint,
        }
        for name, check_field in checks.items():
            try:
                check_field()
            except InvalidLocation as error:
                error.put_before(Text(FieldName(name)))
                raise

    def _check_url(self) -> None:
        url = self.url
        # `{{ params.source }}` may become an S3 URL, so it is not taken for a path.
        if "://" not in url and not holds_template(url.partition("/")[0]):
            _require_path(url)
            trailing = "/" if url.endswith("/") or url in (".", "..") else ""
            path = os.path.abspath(os.path.expanduser(url))  # noqa: PTH100, PTH111 - keep it lexical
            url = "file://" + path + (trailing if path != "/" else "")
            object.__setattr__(self, "url", url)
        if not holds_template(url):
            _split(url)

    def _check_region(self) -> None:
        if self.region and not holds_template(self.region):
            object.__setattr__(self, "region", parse_region_tag(self.region).tag)

    def _check_endpoint(self) -> None:
        if self.endpoint_url and not holds_template(self.endpoint_url):
            endpoint = _urlsplit(self.endpoint_url)
            _require_no_secret("the endpoint", endpoint.netloc)
            if endpoint.scheme not in ("http", "https") or not endpoint.hostname:
                raise InvalidLocation(
                    f"endpoint {self.endpoint_url!r} is not an http:// or https:// address, such "
                    "as http://127.0.0.1:9000"
                )

    @property
    def kind(self) -> str:
        """`s3`, `gcs`, `azure` or `file`."""
        return _split(self.url).kind

    @property
    def cloud(self) -> str:
        """The cloud of the region tag, or by default that of the URL's scheme."""
        return self.region.split(":", 1)[0] if self.region else _CLOUDS[self.kind]

    @property
    def bucket(self) -> str:
        """Bucket, `account/container` on Azure, `/` for files."""
        return _split(self.url).bucket

    @property
    def key(self) -> str:
        """Key or prefix inside the bucket; may be empty."""
        return _split(self.url).key

    def at(self, region: str) -> Location:
        """The same place with its region known."""
        return replace(self, region=region)

    def fsspec(self) -> tuple[Any, str]:
        """A file system of fsspec, and the path in it. Raises ConfigurationInvalid."""
        # By its name: the model knows nothing above it.
        tools: Any = import_module("skyplane_orchestration.storage.other_tools")
        return tools.filesystem_of(self)  # type: ignore[no-any-return]

    def url_of(self, key: str) -> str:
        """The URL of another key in the same bucket, in the spelling of this one."""
        if self.kind == "file":
            return f"file:///{key}"
        is_quoted = self.url.startswith("http")
        return f"{_split(self.url).root}/{quote(key) if is_quoted else key}"


def named_location(given: Mapping[str, Any], names: Mapping[str, str]) -> Location:
    """A location from its fields.

    Args:
        names: field -> the argument that it is from, for errors.

    Raises InvalidLocation, with the name of the argument.
    """
    with naming(names):
        return Location(**given)


def require_different(urls: Sequence[str]) -> None:
    """Raise ConfigurationInvalid for a destination that is given twice."""
    for url in urls:
        if sum(other.rstrip("/") == url.rstrip("/") for other in urls) > 1:
            raise ConfigurationInvalid(f"the destination {url} is given more than once; omit one")


def holds_template(text: str) -> bool:
    """Whether Jinja would change the text; single braces are legal in keys."""
    return "{{" in text or "{%" in text


def is_url_or_path(text: str) -> bool:
    """True for a URL or a path, False for a region tag."""
    if "://" in text or text.startswith(("/", ".", "~")):
        return True
    cloud, colon, name = text.partition(":")
    return not (colon and cloud in ("aws", "gcp", "azure", "local") and "/" not in name)


def _require_path(text: str) -> None:
    """Refuse a text without `://` that is more likely a mistyped URL than a path."""
    if text == "":
        raise InvalidLocation("the name is empty; write . for the current folder")
    if text == "-":
        raise InvalidLocation(
            "'-' (stdin or stdout) is not supported; write ./- for a file of that name"
        )
    head, slash, rest = text.partition("/")
    scheme, colon, name = head.partition(":")
    if not colon:
        return
    scheme = scheme.lower()
    if scheme == "file":
        hint = "write file:///path"
    elif scheme in _STORE_KINDS:
        hint = f"write {scheme}://{(name + slash + rest).lstrip('/')}"
    else:
        hint = f"write ./{text} for a file, or s3://bucket/key for an object"
    raise InvalidLocation(f"{text!r} is neither a URL of a known store nor a plain path; {hint}")


class _Parts(NamedTuple):
    """Of a URL; `root` is what comes before the slash of the key."""

    kind: str
    bucket: str
    key: str
    root: str


def _split(url: str) -> _Parts:
    scheme, _, rest = url.partition("://")
    if scheme in ("http", "https"):
        return _split_azure_https(url)
    if scheme in _ACCOUNT_LAST:
        return _split_account_last(url, scheme, rest)
    kind = _STORE_KINDS.get(scheme)
    if kind is None and holds_template(scheme):
        raise InvalidLocation(
            f"{url!r} starts with a template that nothing has rendered; write ./{url} for a "
            "file of this name"
        )
    if kind is None:
        _require_no_secret("the URL", rest.partition("/")[0])
        meant = scheme.lower()
        hint = f"write {meant}://{rest}" if meant in _STORE_KINDS else "use s3:// or file:///"
        raise InvalidLocation(f"{url!r} has a scheme that is not known; {hint}")
    if kind == "file":
        if not rest.startswith("/"):
            raise InvalidLocation(f"{url!r} has no absolute path; write file:///path")
        normal = os.path.normpath(rest).lstrip("/")
        key = normal + "/" if rest.endswith("/") and normal else normal
        return _Parts(kind, "/", key, "file://")
    if kind == "s3" and rest.startswith("arn:"):
        found = _ACCESS_POINT.fullmatch(rest)
        if found is None:
            raise InvalidLocation(
                f"{url!r} has no ARN of an access point, such as "
                "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/key; a bucket is given by "
                "its name"
            )
        bucket, key = found["bucket"], found["key"] or ""
        return _Parts(kind, bucket, key, f"{scheme}://{bucket}")
    bucket, _, key = rest.partition("/")
    _require_no_secret("the URL", bucket)
    if kind == "azure":
        container, _, key = key.partition("/")
        if not bucket or not container:
            raise InvalidLocation(f"{url!r} needs account and container: az://account/container/")
        bucket = f"{bucket}/{container}"
    if not bucket:
        raise InvalidLocation(f"{url!r} names no bucket")
    if kind == "s3" and not _BUCKET_NAME.fullmatch(bucket):
        raise InvalidLocation(
            f"{bucket!r} in {url!r} is not a bucket name; an endpoint has an option of its own"
        )
    return _Parts(kind, bucket, key, f"{scheme}://{bucket}")


def _urlsplit(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidLocation(f"{url!r} is not a URL: {error}") from error


def _require_no_secret(what: str, authority: str, query: str = "") -> None:
    """Refuse secrets in a location, which logs and XCom show; the message hides them."""
    _, at, host = authority.rpartition("@")
    if at or query:
        kind = "a user name or a password" if at else "a query, perhaps a signature"
        raise InvalidLocation(
            f"{what} at {host!r} carries {kind}; give credentials by a reference, "
            "and write a ? that belongs to a name as %3F"
        )


def _split_azure_https(url: str) -> _Parts:
    parts = _urlsplit(url)
    host = parts.hostname or ""
    _require_no_secret("the URL", parts.netloc, parts.query)
    if not host.endswith(_AZURE_HOST_SUFFIXES):
        raise InvalidLocation(
            f"{url!r} is not an Azure Blob address; for an S3 endpoint give s3://bucket/key "
            "as the URL, and the endpoint in its own option"
        )
    container, _, key = unquote(parts.path.lstrip("/")).partition("/")
    if not container:
        raise InvalidLocation(f"{url!r} names no container")
    root = f"{parts.scheme}://{parts.netloc}/{quote(container)}"
    return _Parts("azure", f"{_account_of(host)}/{container}", key, root)


def _split_account_last(url: str, scheme: str, rest: str) -> _Parts:
    """Of `abfss://container@account.dfs.core.windows.net/key`, as Hadoop and Spark write it."""
    authority, _, key = rest.partition("/")
    container, at, host = authority.partition("@")
    if ":" in container or "@" in host:
        _require_no_secret("the URL", authority)
    if not at:
        raise InvalidLocation(
            f"{url!r} names no account; write {scheme}://container@account.dfs.core.windows.net/"
            "path or az://account/container/path"
        )
    account = _account_of(host)
    if not container or not account:
        raise InvalidLocation(f"{url!r} names no {'account' if container else 'container'}")
    if "." in account:
        raise InvalidLocation(f"{host!r} in {url!r} is no Azure account")
    return _Parts("azure", f"{account}/{container}", key, f"{scheme}://{authority}")


def _account_of(host: str) -> str:
    for suffix in _AZURE_HOST_SUFFIXES:
        host = host.removesuffix(suffix)
    return host


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One region of one cloud; `str(region)` is its tag."""

    cloud: str
    name: str

    def __post_init__(self) -> None:
        if self.cloud not in KNOWN_CLOUDS:
            raise InvalidLocation(
                f"unknown cloud {self.cloud!r} in region tag {self.tag!r};"
                f" use one of {', '.join(KNOWN_CLOUDS)}"
            )
        if not _REGION_NAME.match(self.name):
            raise InvalidLocation(
                f"region name {self.name!r} in tag {self.tag!r} is not made of lower-case"
                " letters, digits and single hyphens"
            )

    @property
    def tag(self) -> str:
        return f"{self.cloud}:{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is outside of all clouds: this machine, a private network."""
        return self.cloud == LOCAL_CLOUD

    def __str__(self) -> str:
        return self.tag


def parse_region_tag(text: str) -> Region:
    """The region that `cloud:region` names, e.g. `aws:us-east-1`.

    Raises InvalidLocation when the text is not a tag or the cloud is unknown.
    """
    cloud, colon, name = text.strip().partition(":")
    if not colon:
        raise InvalidLocation(
            f"{text!r} is not a region tag; write cloud:region, for example aws:us-east-1"
        )
    return Region(cloud, name)


def did_you_mean(tag: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name; empty where none looks like it."""
    near = nearest_names(tag, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def nearest_names(tag: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known` that look most like `tag`, best first; may be empty."""
    names = list(known)
    found = difflib.get_close_matches(tag, names, n=_SUGGESTIONS, cutoff=0.6)
    if found:
        return found
    # With a missing or mistyped cloud, compare the region names alone.
    wanted = tag.rpartition(":")[2]
    by_name: dict[str, list[str]] = {}
    for known_tag in names:
        by_name.setdefault(known_tag.rpartition(":")[2], []).append(known_tag)
    close = difflib.get_close_matches(wanted, by_name, n=_SUGGESTIONS, cutoff=0.6)
    return [known_tag for name in close for known_tag in by_name[name]][:_SUGGESTIONS]
