"""What IAM is asked for a request to S3.

It follows "Actions, resources, and condition keys for Amazon S3" of the Service Authorization
Reference (docs.aws.amazon.com, as read on 2026-11-28), for requests by path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from strict_clouds.iam import Access

#: (method, parameter of the query) -> action on an object.
_OBJECT: Final = {
    ("GET", ""): "GetObject",
    ("HEAD", ""): "GetObject",
    ("GET", "tagging"): "GetObjectTagging",
    ("GET", "uploadId"): "ListMultipartUploadParts",
    ("PUT", ""): "PutObject",
    ("PUT", "uploadId"): "PutObject",
    ("PUT", "tagging"): "PutObjectTagging",
    ("POST", "uploads"): "PutObject",
    ("POST", "uploadId"): "PutObject",
    ("DELETE", ""): "DeleteObject",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
}
#: The same on a bucket.
_BUCKET: Final = {
    ("GET", ""): "ListBucket",
    ("HEAD", ""): "ListBucket",
    ("GET", "uploads"): "ListBucketMultipartUploads",
    ("GET", "location"): "GetBucketLocation",
    ("PUT", ""): "CreateBucket",
    ("DELETE", ""): "DeleteBucket",
}
#: Header of a write -> the action that it needs too.
_ALSO: Final = {"HTTP_X_AMZ_TAGGING": "PutObjectTagging", "HTTP_X_AMZ_ACL": "PutObjectAcl"}


def place_of(environment: Mapping[str, Any]) -> tuple[str, str]:
    """Bucket and key of a request by path; the key may be empty."""
    raw = environment.get("RAW_URI") or environment.get("REQUEST_URI") or ""
    path = unquote(raw.partition("?")[0]) if raw else str(environment["PATH_INFO"])
    bucket, _, key = path.lstrip("/").partition("/")
    return bucket, key


def accesses_of(environment: Mapping[str, Any]) -> Iterator[Access]:
    """All that has to be allowed for a request."""
    bucket, key = place_of(environment)
    method = str(environment["REQUEST_METHOD"])
    query = parse_qs(str(environment.get("QUERY_STRING", "")), keep_blank_values=True)
    known = _OBJECT if key else _BUCKET
    marks = [name for name in query if (method, name) in known]
    action = known.get((method, marks[0] if marks else ""), f"{method} of the strict fake")
    if not key:
        context = {"s3:prefix": tuple(query["prefix"])} if "prefix" in query else {}
        yield Access(f"s3:{action}", f"arn:aws:s3:::{bucket}", context)
        return
    arn = f"arn:aws:s3:::{bucket}/{key}"
    yield Access(f"s3:{action}", arn)
    if action == "PutObject":
        yield from (
            Access(f"s3:{more}", arn) for name, more in _ALSO.items() if name in environment
        )
    if source := environment.get("HTTP_X_AMZ_COPY_SOURCE"):
        name = unquote(str(source)).lstrip("/").partition("?")[0]
        yield Access("s3:GetObject", f"arn:aws:s3:::{name}")


def may_see_missing(environment: Mapping[str, Any]) -> Access:
    """What tells a caller that a key is missing; without it, S3 refuses the request with 403.

    The request has no prefix, so a condition on `s3:prefix` does not hold.
    """
    return Access("s3:ListBucket", f"arn:aws:s3:::{place_of(environment)[0]}")
