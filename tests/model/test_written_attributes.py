"""Headers and user metadata that a job sets."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.flat_job import flat_job
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.open import destination_spec, transfer_spec_of

ENDS = {"source_url": "/in/", "destination_url": "s3://b/x/"}


def job(**more: Any) -> TransferJob:
    return flat_job({**ENDS, **more})


def test_nothing_is_set_by_default() -> None:
    assert job().written_attributes is None
    assert transfer_spec_of(job()).sets is None


def test_all_are_told_to_the_gateways() -> None:
    made = job(
        content_type="text/html; charset=utf-8",
        cache_control="max-age=60",
        headers={"Content-Disposition": "attachment", "CONTENT-ENCODING": "gzip"},
        object_metadata={"Owner": "me", "cost-centre": "7"},
    )
    wanted = ObjectAttributes(
        content_type="text/html; charset=utf-8",
        cache_control="max-age=60",
        content_disposition="attachment",
        content_encoding="gzip",
        metadata=(("cost-centre", "7"), ("owner", "me")),
    )
    assert transfer_spec_of(made).sets == transfer_spec_of(made).kept.sets == wanted
    spec = transfer_spec_of(made)
    assert type(spec).from_dict(spec.to_dict()) == spec
    assert TransferJob.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    "text", ["2027-01-31T07:00:00+01:00", "Sun, 31 Jan 2027 06:00:00 GMT", "2027-01-31T06:00:00Z"]
)
def test_expires_is_an_option_of_s3(text: str) -> None:
    made = job(headers={"expires": text})
    assert destination_spec(made).option("expires") == "Sun, 31 Jan 2027 06:00:00 GMT"
    assert made.written_attributes is None
    with pytest.raises(ConfigurationInvalid, match="'Expires' is kept by S3 only"):
        job(headers={"Expires": text}, destination_url="gs://b/x/")


@pytest.mark.parametrize(
    ("given", "clue"),
    [
        ({"content_type": ""}, "content_type must be a text of printable"),
        ({"cache_control": "caf\u00e9"}, "cache_control must be a text of printable"),
        ({"headers": {"X-Amz-Acl": "private"}}, "headers cannot set 'X-Amz-Acl'; it can set"),
        ({"headers": {"Content-Language": "a\r\nX: b"}}, "headers 'Content-Language' must be"),
        ({"headers": {"Expires": "soon"}}, "headers 'Expires' must be a time"),
        ({"headers": {"Content-Type": "a/b"}, "content_type": "a/b"}, "as does content_type"),
        ({"object_metadata": {"mtime": "3"}}, "object_metadata cannot set 'mtime'"),
        ({"object_metadata": {"SkyplaneSource": "3"}}, "object_metadata cannot set"),
        ({"object_metadata": {"a b": "3"}}, "object_metadata must have names of letters"),
        ({"object_metadata": {"a": "x\ny"}}, "object_metadata 'a' must be a printable text"),
        ({"object_metadata": {"a": 1}}, "object_metadata.a must be text"),
        ({"content_type": "a/b", "destination_url": "/out/"}, "leave out content_type"),
        ({"object_metadata": {"a": "b"}, "destination_url": "/out/"}, "leave out object_metadata"),
    ],
)
def test_what_no_store_keeps_is_refused(given: dict[str, Any], clue: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        job(**given)
    assert clue in str(refused.value)


def test_templates_are_checked_when_they_are_rendered() -> None:
    ends = Location("/in/"), Location("s3://b/x/")
    TransferJob(*ends, object_metadata={"run": "{{ run_id }}"}, content_type="{{ params.type }}")
