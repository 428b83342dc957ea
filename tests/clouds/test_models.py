"""The fakes hold every request and answer to the models that the vendors publish."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import requests

from strict_clouds import arm_wire, aws_models, aws_wire, schemas
from strict_clouds.arm import SUBSCRIPTION, strict_arm
from strict_clouds.ec2 import strict_ec2
from strict_clouds.gce import PROJECT, strict_gce
from strict_clouds.schemas import ModelViolation


def _ec2(action: str, **parameters: str) -> list[str]:
    sent = {"Action": action, "Version": "2016-11-15"}
    sent |= {name.replace("_", "."): value for name, value in parameters.items()}
    return list(aws_models.of_request(aws_wire.Request("ec2", action, "eu-west-3", sent)))


_RUN = {"MinCount": "1", "MaxCount": "1"}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (_RUN, ""),
        ({"MinCount": "1"}, "MaxCount is missing"),
        ({**_RUN, "Colour": "red"}, "there is no Colour"),
        ({**_RUN, "NetworkInterface_1_Colour": "red"}, "there is no NetworkInterfaces[0].Colour"),
        ({**_RUN, "MaxCount": "two"}, "MaxCount: 'two' is no whole number"),
        ({**_RUN, "DryRun": "yes"}, "DryRun: 'yes' is not true or false"),
        (
            {**_RUN, "InstanceInitiatedShutdownBehavior": "halt"},
            "InstanceInitiatedShutdownBehavior: 'halt' is none of stop, terminate",
        ),
        (
            {**_RUN, "MetadataOptions_HttpTokens": "maybe"},
            "MetadataOptions.HttpTokens: 'maybe' is none of optional, required",
        ),
    ],
)
def test_parameters_of_ec2(parameters: dict[str, str], said: str) -> None:
    assert _ec2("RunInstances", **parameters) == ([said] if said else [])


def test_ranges_and_patterns_of_aws() -> None:
    """botocore's own validator looks at neither patterns nor enums."""
    ask = {"ServiceCode": "ec2!", "QuotaCode": ""}
    request = aws_wire.Request("servicequotas", "GetServiceQuota", "eu-west-3", ask)
    assert list(aws_models.of_request(request)) == [
        "ServiceCode: 'ec2!' does not match [a-zA-Z][a-zA-Z0-9-]{1,63}",
        "QuotaCode: '' does not match [a-zA-Z][a-zA-Z0-9-]{1,128}",
        "QuotaCode: 0 is not within 1 and 128",
    ]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("<volumeSet/>", []),
        ("<volumeSet><item><status>lost</status></item></volumeSet>", ["'lost' is none of"]),
        ("<volumes/>", ["there is no volumes"]),
        ("<volumeSet><item><size>big</size></item></volumeSet>", ["is no whole number"]),
        ("<volumeSet><item><createTime>now</createTime></item></volumeSet>", ["is no time"]),
    ],
)
def test_answers_of_ec2(told: str, said: list[str]) -> None:
    request = aws_wire.Request("ec2", "DescribeVolumes", "eu-west-3", {})
    answer = aws_wire.xml_answer("DescribeVolumes", told)
    found = list(aws_models.of_answer(request, answer))
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"colour": "red"}, "there is no colour"),
        ({"id": "7"}, "id is read-only"),
        ({"name": 7}, "name is 7, and not of the type string"),
        ({"name": "Upper"}, "name: 'Upper' does not match"),
        ({"scheduling": {"provisioningModel": "CHEAP"}}, "scheduling.provisioningModel: 'CHEAP'"),
        ({"disks": [{"boot": "yes"}]}, "disks[0].boot is 'yes', and not of the type boolean"),
        ({"labels": {"one": 1}}, "labels.one is 1, and not of the type string"),
        ({"name": None}, "name is missing"),
    ],
)
def test_bodies_of_google(change: Mapping[str, Any], said: str) -> None:
    body = {"name": "one", "machineType": "zones/z/machineTypes/t", "networkInterfaces": []}
    sent = {name: value for name, value in {**body, **change}.items() if value is not None}
    found = list(schemas.model("compute").request("compute.instances.insert", sent))
    assert len(found) == bool(said)
    assert all(text.startswith(said) for text in found)


def test_urls_of_google() -> None:
    compute = schemas.model("compute")
    asked = {"requestId": "x", "colour": "red"}
    assert list(compute.query("compute.instances.insert", asked)) == ["no parameter colour"]
    many = {"maxResults": "many", "includeAllScopes": "yes"}
    assert list(compute.query("compute.instances.aggregatedList", many)) == [
        "maxResults: many is no whole number",
        "includeAllScopes: yes is not true or false",
    ]
    said = list(compute.path("compute.instances.get", {"zone": "Z", "instance": "a" * 64}))
    assert [text.partition(":")[0] for text in said] == ["zone", "instance"]


@pytest.mark.parametrize(
    ("rule", "change", "said"),
    [
        ("protocol", "Tcp", ""),
        ("protocol", "TCP/IP", "protocol: 'TCP/IP' is none of"),
        ("colour", "red", "colour"),
        ("priority", "1", "priority is '1', and not of the type integer"),
        ("provisioningState", "Succeeded", "provisioningState is read-only"),
        ("direction", None, "direction is missing"),
    ],
)
def test_bodies_of_azure(rule: str, change: Any, said: str) -> None:
    facts = {"protocol": "Tcp", "access": "Allow", "priority": 100, "direction": "Inbound"}
    kept = {name: value for name, value in {**facts, rule: change}.items() if value is not None}
    body = {"properties": {"securityRules": [{"name": "one", "properties": kept}]}}
    found = list(schemas.model("arm").request("firewalls.put", body))
    assert len(found) == bool(said)
    assert all(said in text for text in found)


def test_the_fake_of_azure_has_the_paths_of_its_sdk() -> None:
    def plain(path: str) -> str:
        return re.sub(r"\{\w+\}", "{}", path).lower()

    methods = schemas.model("arm").methods
    assert {rule for rule, _ in arm_wire.ROUTES.values()} - set(methods) == {"operations.get"}
    for (_, path), (rule, _) in arm_wire.ROUTES.items():
        if "path" in methods.get(rule, {}) and rule not in ("machines.tag", "machines.tags"):
            # Lists of a group have the type's path behind the group.
            whole, theirs = path, methods[rule]["path"]
            if ".list" in rule:
                whole = whole.removeprefix("resourceGroups/{group}/")
                theirs = theirs.replace("resourceGroups/{resourceGroupName}/", "")
            assert plain(f"/subscriptions/{{}}/{whole}") == plain(theirs), rule


def test_a_violation_fails_the_test_that_a_fake_was_in() -> None:
    scope = {"Authorization": "Credential=x/20261128/eu-west-3/ec2/aws4_request"}
    asked = {"Action": "DescribeVolumes", "Version": "2016-11-15", "Colour": "red"}
    with pytest.raises(ModelViolation, match="Volumes: there is no Colour"), strict_ec2() as ec2:
        requests.post(ec2.url, data=asked, headers=scope, timeout=5)
    with pytest.raises(ModelViolation, match="no parameter colour"), strict_gce() as gce:
        requests.get(f"{gce.url}/compute/v1/projects/{PROJECT}?colour=red", timeout=5)
    version = schemas.model("arm").methods["groups.put"]["version"]
    where = f"subscriptions/{SUBSCRIPTION}/resourceGroups/one?api-version={version}"
    body = json.dumps({"location": "westeurope", "colour": "red"})
    with pytest.raises(ModelViolation, match=r"put: there is no colour"), strict_arm() as arm:
        requests.put(f"{arm.url}/{where}", data=body, timeout=5)
