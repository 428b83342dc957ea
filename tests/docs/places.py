"""The places that a code block names, on an S3 server."""

from __future__ import annotations

import re
from typing import Final

import boto3

URL: Final = re.compile(r"s3://(?P<bucket>[a-z0-9.-]{3,})/(?P<prefix>[^\"'\s]*)")
#: More than one page of small objects would prove no more; one is larger than a chunk.
CONTENT: Final = {"a.bin": b"a" * (17 << 20), "b/c.txt": b"c", "b/empty": b"", "_SUCCESS": b"done"}


class Places:
    """The places that a block names: the first is the source, the second the destination."""

    def __init__(self, endpoint: str, text: str) -> None:
        found = dict.fromkeys((match["bucket"], match["prefix"]) for match in URL.finditer(text))
        self._source, self._destination = list(found)[:2]
        self._s3 = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        for bucket, _ in found:
            self._s3.create_bucket(Bucket=bucket)
        bucket, prefix = self._source
        for key, body in CONTENT.items():
            self._s3.put_object(Bucket=bucket, Key=prefix + key, Body=body)

    def assert_copied(self) -> None:
        bucket, prefix = self._destination
        listed = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        keys = [entry["Key"].removeprefix(prefix) for entry in listed]
        objects = {
            key: self._s3.get_object(Bucket=bucket, Key=prefix + key)["Body"].read()
            for key in keys
            if not key.startswith(".skyplane/")
        }
        assert objects == CONTENT
