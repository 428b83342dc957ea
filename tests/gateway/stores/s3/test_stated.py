"""Which checksums of S3 are those of the whole body."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.checksums import ChecksumComparison, Stated
from skyplane_gateway.stores.s3.bucket import S3Bucket
from skyplane_gateway.stores.s3.requests import md5_of, stated_of

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


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"ChecksumType": "FULL_OBJECT", "ChecksumCRC32C": "4waSgw=="}, ("CRC32C", "e3069283")),
        ({"ChecksumType": "FULL_OBJECT", "ChecksumCRC32": "y/Q5Jg=="}, ("CRC32", "cbf43926")),
        (
            {"ChecksumType": "FULL_OBJECT", "ChecksumCRC64NVME": "rosUhgp5mIg="},
            ("CRC64NVME", "ae8b14860a799888"),
        ),
        # A range of several parts has it without the `-N`: see boto/botocore#3346.
        ({"ChecksumType": "COMPOSITE", "ChecksumCRC32C": "4waSgw=="}, None),
        ({"ChecksumCRC32C": "4waSgw=="}, None),
        ({"ChecksumType": "FULL_OBJECT", "ChecksumCRC32C": "4waSgw==-2"}, None),
        ({"ChecksumType": "FULL_OBJECT", "ChecksumSHA256": "4waSgw=="}, None),
    ],
)
def test_a_checksum_counts_if_it_is_that_of_the_whole_object(
    answer: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    found = stated_of(answer)
    assert found == expected
    comparison = ChecksumComparison("k", found)
    comparison.take(b"1234")
    comparison.take(b"56789")
    comparison.finish()


@pytest.mark.parametrize("harness", ["versitygw"], indirect=True)
def test_aws_is_asked_once_more_where_its_answer_to_a_range_states_nothing(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This server answers ranges with checksums. AWS does not; and KMS has another ETag."""
    store, body = harness.shared, b"body"
    info = store.put("k", body, crc32c=crc32c(body))
    get_object = store._client.get_object

    def as_aws(**named: Any) -> dict[str, Any]:
        answer = dict(get_object(**named))
        answer.pop("ChecksumCRC32C", None)
        return {**answer, "ServerSideEncryption": "aws:kms"}

    monkeypatch.setattr(store._client, "get_object", as_aws)
    expected = Stated("CRC32C", f"{crc32c(body):08x}")
    with store.read("k", offset=0, length=4, if_match=info.etag) as reader:
        assert reader.stated == expected
    with store.read("k", offset=0, length=3, if_match=info.etag) as reader:
        assert reader.stated is None, "it is not the whole object"
    bodies: list[Any] = []

    def failing(*_: Any, **__: Any) -> dict[str, Any]:
        raise EndpointConnectionError(endpoint_url="http://nowhere")

    def noted(**named: Any) -> dict[str, Any]:
        answer = as_aws(**named)
        bodies.append(answer["Body"])
        return answer

    monkeypatch.setattr(store._client, "get_object", noted)
    monkeypatch.setattr(store._client, "head_object", failing)
    with pytest.raises(StoreUnavailable):
        store.read("k", offset=0, length=4, if_match=info.etag)
    assert bodies[0]._raw_stream.closed, "its connection goes back"


@pytest.mark.parametrize(("bucket", "is_one"), [("plain", True), ("a--use1-az4--x-s3", False)])
def test_an_etag_of_a_directory_bucket_is_no_md5(bucket: str, is_one: bool) -> None:
    keys = Credentials({"access_key_id": "a", "secret_access_key": "b"})
    opened = S3Bucket(StoreSpec("s3", bucket, region="us-east-1"), keys)
    assert opened.stated({"ETag": MD5}) == (("MD5", MD5) if is_one else None)
