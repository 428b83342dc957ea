"""Pages of listings are parsed as botocore parses them, and anything else is left to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.loaders import create_loader
from botocore.model import ServiceModel
from botocore.parsers import RestXMLParser

from skyplane_gateway.stores.response_validation import read_xml
from skyplane_gateway.stores.s3 import sdk
from skyplane_gateway.stores.s3.sdk import BadAnswer, Parsers, descriptions, new_session

AWS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
ROW = (
    "<Contents><Key>a%2Bb</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"
    "<ETag>&quot;0f&quot;</ETag><Size>12</Size><StorageClass>GLACIER</StorageClass></Contents>"
)
RESTORED = ROW.replace(
    "<Size>",
    "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>"
    "<RestoreExpiryDate>2026-02-03T00:00:00.000Z</RestoreExpiryDate></RestoreStatus><Size>",
)
PAGE = (
    "<Name>bucket</Name><Prefix>a</Prefix><StartAfter></StartAfter><EncodingType>url</EncodingType>"
    "<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>next+/=</NextContinuationToken>"
)


def body_of(inner: str, namespace: str = AWS) -> bytes:
    return f"<?xml version='1.0'?><ListBucketResult {namespace}>{inner}</ListBucketResult>".encode()


def page_of(body: bytes) -> dict[str, Any] | None:
    return sdk.page_of(read_xml(body, "ListBucketResult"))


def answers(body: bytes, status: int = 200, operation: str = "ListObjectsV2") -> tuple[Any, Any]:
    """The answer parsed here, and by botocore."""
    model = ServiceModel(create_loader().load_service_model("s3", "service-2"), "s3")
    shape: Any = model.operation_model(operation).output_shape
    response = {"status_code": status, "headers": {"X-Amz-Request-Id": "1"}, "body": body}
    own, theirs = Parsers().create_parser("rest-xml"), RestXMLParser()
    return own.parse(dict(response), shape), theirs.parse(dict(response), shape)


@pytest.mark.parametrize("namespace", [AWS, ""], ids=["aws", "no namespace"])
@pytest.mark.parametrize(
    "inner",
    [PAGE + ROW, PAGE + ROW + RESTORED, PAGE, "<IsTruncated>false</IsTruncated>" + ROW],
)
def test_a_page_is_parsed_as_botocore_does(inner: str, namespace: str) -> None:
    own, theirs = answers(body_of(inner, namespace))
    assert page_of(body_of(inner, namespace)) is not None
    used = ("EncodingType", "IsTruncated", "KeyCount", "NextContinuationToken", "Prefix")
    assert [own.get(name) for name in used] == [theirs.get(name) for name in used]
    assert own["Contents"] == theirs.get("Contents", [])
    metadata = own["ResponseMetadata"]
    assert metadata["HTTPHeaders"] == theirs["ResponseMetadata"]["HTTPHeaders"]
    assert metadata["HTTPStatusCode"] == 200


@pytest.mark.parametrize(
    "inner",
    [
        ROW.replace("12", ""),
        ROW.replace("Key>", "Name>"),
        ROW.replace("2026-01-02T03:04:05.678Z", "Fri, 02 Jan 2026 03:04:05 GMT"),
        ROW.replace("678Z", "678"),
        RESTORED.replace("000Z", "000"),
    ],
    ids=["no size", "no key", "another time", "no zone", "no zone of a restore"],
)
def test_an_unusual_row_is_left_to_botocore(inner: str) -> None:
    assert page_of(body_of(inner)) is None


def test_a_refused_listing_and_a_broken_one_are_botocores() -> None:
    refusal = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    own, theirs = answers(refusal, 403)
    assert own == theirs
    assert own["Error"]["Code"] == "AccessDenied"
    with pytest.raises(BadAnswer):
        answers(b"<ListBucketRes")


def test_other_operations_are_botocores() -> None:
    parts = (
        b"<ListPartsResult><UploadId>u</UploadId><IsTruncated>false</IsTruncated></ListPartsResult>"
    )
    own, theirs = answers(parts, operation="ListParts")
    assert own == theirs


def test_descriptions_are_those_of_botocore(tmp_path: Path) -> None:
    """A folder of their own, since botocore changes what it has loaded."""
    (tmp_path / "own.json").write_text('{"a": 1}')
    own, theirs = descriptions(str(tmp_path)), create_loader()
    assert own is descriptions(str(tmp_path))
    assert own.load_data("own") == {"a": 1}
    for kind in ("service-2", "endpoint-rule-set-1"):
        assert own.load_service_model("s3", kind) == theirs.load_service_model("s3", kind)
    assert own.load_data("endpoints") == theirs.load_data("endpoints")


def test_sessions_have_the_handlers_of_botocore_and_share_none_of_their_own() -> None:
    """The encoding of keys is one of botocore's handlers."""
    made: list[str] = []
    first, second = new_session(), new_session()
    event = "before-parameter-build.s3.ListObjectsV2"
    first.register(event, lambda **_: made.append("first"))
    model = ServiceModel(create_loader().load_service_model("s3", "service-2"), "s3")
    operation = model.operation_model("ListObjectsV2")
    parameters: dict[str, Any] = {"Bucket": "b"}
    for session in (first, second):
        session.emit(event, params=parameters, context={}, model=operation)
    assert made == ["first"]
    assert parameters["EncodingType"] == "url"


def test_a_service_without_a_description_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataNotFoundError):
        descriptions(str(tmp_path)).load_service_model("mine", "service-2")
    with pytest.raises(UnknownServiceError):
        descriptions(str(tmp_path)).load_service_model("nobody's", "service-2")
