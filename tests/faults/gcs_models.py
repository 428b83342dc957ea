"""Requests to Google Cloud Storage against its discovery document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from strict_clouds import schemas


@cache
def _gcs_methods() -> list[tuple[str, re.Pattern[str], str]]:
    found = []
    for name, method in schemas.model("storage").methods.items():
        path = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["path"])
        found.append(
            (method["httpMethod"], re.compile(rf"(/upload|/download)?/storage/v1/{path}"), name)
        )
    return found


def of_gcs(
    method: str, url: str, headers: Mapping[str, Any], body: bytes
) -> tuple[str, Iterator[str]]:
    """The method of the JSON API and what is wrong; nothing for the XML API, which has no model."""
    parts = urlsplit(url)
    if "/storage/v1/" not in parts.path:
        return "", iter(())
    for verb, pattern, name in _gcs_methods():
        if verb == method and (matched := pattern.fullmatch(parts.path)):
            return name, _in_gcs(name, matched, dict(parse_qsl(parts.query)), headers, body)
    return "", iter([f"Google has no {method} {parts.path}"])


def _in_gcs(
    name: str,
    matched: re.Match[str],
    query: Mapping[str, str],
    headers: Mapping[str, Any],
    body: bytes,
) -> Iterator[str]:
    known = schemas.model("storage")
    path = {key: unquote(value) for key, value in matched.groupdict().items()}
    yield from known.query(name, query)
    yield from known.path(name, path)
    if body and "multipart" in str(headers.get("Content-Type")):
        body = body.split(b"\r\n", 4)[3]
    yield from known.request(name, json.loads(body or b"{}"))
