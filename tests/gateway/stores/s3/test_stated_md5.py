"""Which ETags of S3 are the MD5 of the body."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.stores.s3.requests import md5_of

MD5 = "5d41402abc4b2a76b9719d911017c592"


@pytest.mark.parametrize(
    ("answer", "is_one"),
    [
        ({}, True),
        ({"ServerSideEncryption": "AES256"}, True),
        ({"ServerSideEncryption": "aws:kms"}, False),
        ({"ServerSideEncryption": "aws:kms:dsse"}, False),
        ({"SSECustomerAlgorithm": "AES256"}, False),
        ({"ETag": f'"{MD5}-2"'}, False),
        ({"ETag": MD5.upper()}, True),
        ({"ETag": '"0123"'}, False),
        ({"ETag": ""}, False),
    ],
)
def test_an_etag_is_the_md5_unless_the_answer_shows_otherwise(
    answer: dict[str, Any], is_one: bool
) -> None:
    found = md5_of({"ETag": f'"{MD5}"', **answer})
    assert found == (MD5 if is_one else None)
