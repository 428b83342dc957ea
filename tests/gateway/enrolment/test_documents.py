from __future__ import annotations

import json
from typing import Any

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.enrolment.documents import EnrolmentDocument, proof_of

TOKEN = "5e" * 32
DOCUMENT = EnrolmentDocument(
    fleet_key="ab" * 16,
    instance="aws:us-east-1/0",
    port=7600,
    start_within_s=900.0,
    authority_pem="-----BEGIN CERTIFICATE-----\n",
    token_hex=TOKEN,
)


def test_a_document_survives_json_and_hides_its_token() -> None:
    assert EnrolmentDocument.from_json(DOCUMENT.to_json()) == DOCUMENT
    assert TOKEN not in repr(DOCUMENT)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fleet_key": "xyz"}, "fleet key"),
        ({"instance": ""}, "name of its instance"),
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"start_within_s": 0}, "start_within_s"),
        ({"token_hex": TOKEN[2:]}, "token_hex"),
        ({"token_hex": TOKEN + "g"}, "token_hex"),
        ({"schema_version": 2}, "schema_version"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_without_its_token(
    change: dict[str, Any], says: str
) -> None:
    text = json.dumps({**json.loads(DOCUMENT.to_json()), **change})
    with pytest.raises(ConfigurationInvalid, match=says) as caught:
        EnrolmentDocument.from_json(text)
    assert TOKEN[2:] not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="the enrolment document"):
        EnrolmentDocument.from_json(text)


def test_a_proof_depends_on_everything() -> None:
    values: dict[str, Any] = {
        "fleet_key": "ab",
        "instance": "aws:us-east-1/0",
        "challenge": bytes(32),
        "certificate_der": b"der",
    }
    proofs = {
        proof_of(b"token", **values),
        proof_of(b"other", **values),
        proof_of(b"token", **{**values, "fleet_key": "cd"}),
        proof_of(b"token", **{**values, "instance": "aws:us-east-1/1"}),
        proof_of(b"token", **{**values, "challenge": b"\1" * 32}),
        proof_of(b"token", **{**values, "certificate_der": b"other"}),
    }
    assert len(proofs) == 6
    assert {len(proof) for proof in proofs} == {32}
