"""S3 accepts the lifecycle rule of docs/how-to/sweep.md, and the rule covers the journals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from skyplane_gateway.journal.document import folder_of_destination
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sweep.md"


@pytest.fixture
def configuration() -> Any:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(block)


def test_s3_takes_it(configuration: Any) -> None:
    model = botocore.session.get_session().get_service_model("s3")
    shape = model.operation_model("PutBucketLifecycleConfiguration").input_shape
    assert shape is not None
    request = {"Bucket": "b", "LifecycleConfiguration": configuration}
    assert ParamValidator().validate(request, shape).generate_report() == ""


def test_it_takes_old_journals_and_nothing_else(configuration: Any) -> None:
    (rule,) = configuration["Rules"]
    folder = folder_of_destination("data/", recursive=True)
    assert rule["Filter"] == {"Prefix": folder + JOURNAL_FOLDER}
    # S3 refuses days beside this; and the current version is what a resume reads.
    assert rule["Expiration"] == {"ExpiredObjectDeleteMarker": True}
    assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] >= 1
