"""The report of `make live` says what happened, and names no account, bucket or secret."""

from __future__ import annotations

import json

from tests.live.report import Redactor, outcome_of

ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "GOOGLE_CLOUD_PROJECT": "blue-sky",
    "HOME": "/home/ann",
}
PREFIXES = "s3://acme-virginia/live/ az://acmeaccount/container/x/"


def test_no_name_of_an_account_and_no_secret_is_left() -> None:
    names = (
        "arn:aws:iam::123456789012:user/ann",
        "123456789012",
        "acme-virginia.s3.amazonaws.com/live",
        "https://acmeaccount.blob.core.windows.net/container?sig=abc%2F",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "/subscriptions/blue/resourceGroups/acme",
        "projects/green-grass/zones/europe-west1-b",
        "ann@example.com",
        "i-0123456789abcdef0",
        "198.51.100.7",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI",
        "blue-sky",
    )
    texts = [f"the service refused {name}: not allowed" for name in names]
    found = Redactor.of(ENVIRONMENT, PREFIXES).redacted({"error": {"messages": texts, "n": 3}})
    kept = json.dumps(found)
    assert not [name for name in names if name in kept]
    for word in ("acme", "ann", "sig", "green", "123"):
        assert word not in kept
    assert found["error"]["n"] == 3
    for text in found["error"]["messages"]:
        assert text.startswith("the service refused ***")
        assert text.endswith("not allowed")


def test_regions_and_codes_are_kept() -> None:
    said = "launch-refused: no capacity for m6i.large in aws:eu-west-3 (L-1216C47A)"
    assert Redactor.of(ENVIRONMENT, PREFIXES).redacted(said) == said


def test_an_outcome_has_figures_and_no_urls() -> None:
    result = {
        "copied": 3,
        "seconds": 2.5,
        "source": "s3://acme/a/",
        "resume_handle": "secret",
        "cost": {"egress_usd": 0.0123456789, "total_usd": 0.02},
    }
    error = {"code": "teardown-incomplete", "message": "an instance is left"}
    assert outcome_of({"result": result, "error": error}) == {
        "copied": 3,
        "seconds": 2.5,
        "cost": {"egress_usd": 0.012346, "total_usd": 0.02},
        "error": error,
    }
    check = {"name": "aws permissions", "state": "fail", "detail": "ec2:RunInstances"}
    assert outcome_of({"checks": [check, check | {"state": "ok"}]}) == {
        "refused": ["aws permissions: ec2:RunInstances"]
    }
