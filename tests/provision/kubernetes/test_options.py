"""Options of clusters, and the quotas of a namespace."""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.test_imports import loaded_by

from skyplane_gateway.common.schema import decode
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra
from skyplane_orchestration.provision.cloud_registry import parse_clouds
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.kubernetes import KubernetesCloud
from skyplane_orchestration.provision.kubernetes.checks import OF_BALANCERS, PERMISSIONS
from skyplane_orchestration.provision.kubernetes.client import GROUPS
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion, KubernetesOptions
from skyplane_orchestration.provision.kubernetes.quotas import exhausted, instances_left, quantity
from skyplane_orchestration.security.store_credentials import CredentialSources

IMAGE: Final = f"registry.example/skyplane-gateway@sha256:{'ab' * 32}"
REGION: Final = "aws:eu-west-1"
SETTINGS: Final = {"image": IMAGE, "kubernetes": {"regions": {REGION: {"context": "production"}}}}


def test_clusters_need_no_address_of_workers_and_have_the_image_of_the_whole_file() -> None:
    section = parse_clouds(SETTINGS).clouds["kubernetes"]
    assert section["image"] == IMAGE
    cloud = KubernetesCloud(decode(KubernetesOptions, section, "the section"))
    assert not Clouds([cloud]).is_dialed("ab", REGION)


def test_an_image_with_a_python_is_refused_beside_the_image_of_the_whole_file() -> None:
    """Its Pods would wait for software that nobody sends."""
    section = {"regions": {REGION: {}}, "python_image": IMAGE}
    assert parse_clouds({"kubernetes": section}).boot.software == "push"
    with pytest.raises(ConfigurationInvalid, match="python_image of kubernetes cannot be beside"):
        parse_clouds({"image": IMAGE, "kubernetes": section, "gcp": {}})


def test_settings_are_read_without_the_client_library() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provision.cloud_registry import parse_clouds;"
        f"parse_clouds({SETTINGS})"
    )
    assert "kubernetes" not in loaded


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "skyplane_orchestration.provision.kubernetes"
    for name in [one for one in sys.modules if one.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingExtra, match=r"skyplane-orchestration\[kubernetes\]"):
        parse_clouds(SETTINGS).open(CredentialSources())


def page(repository: Path, name: str, mark: str) -> Any:
    text = (repository / f"docs/{name}").read_text()
    block = re.search(rf"<!-- test: {mark} -->\s*```yaml\n(.*?)\n *```", text, re.DOTALL)
    assert block is not None
    return yaml.safe_load(textwrap.dedent(block[1]))


def test_the_page_has_a_file_that_can_be_used_and_the_role_that_is_checked(
    repository: Path,
) -> None:
    settings = parse_clouds(page(repository, "how-to/kubernetes.md", "clouds_file"))
    assert settings.open(CredentialSources()).name == "cloud"
    role = page(repository, "how-to/kubernetes.md", "role")
    allowed = {
        (rule["apiGroups"][0], resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == {
        (GROUPS.get(resource.partition("/")[0], ""), resource, verb)
        for resource, verbs in (PERMISSIONS | OF_BALANCERS).items()
        for verb in verbs
    }


def test_the_page_has_every_option(repository: Path) -> None:
    text = (repository / "docs/reference/options-kubernetes.md").read_text()
    whole, region = (
        set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
        for part in text.partition("\n## Labels")[0].split("\n## Of a region")
    )
    assert whole == {one.name for one in fields(KubernetesOptions)}
    assert region == {one.name for one in fields(ClusterRegion)}


@pytest.mark.parametrize(
    ("aws", "is_apart"),
    [({}, False), ({"regions": [REGION]}, False), ({"regions": ["aws:us-east-1"]}, True)],
)
def test_a_region_is_in_one_place(aws: dict[str, Any], is_apart: bool) -> None:
    """A teardown looks for what a region has in one place."""
    document = {**SETTINGS, "aws": aws, "control_cidrs": ["203.0.113.7/32"]}
    if is_apart:
        parse_clouds(document)
        return
    with pytest.raises(ConfigurationInvalid, match=f"{REGION} is a region of kubernetes"):
        parse_clouds(document)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"regions": {}}, "regions of kubernetes is empty"),
        ({"regions": {"eu-west-1": {}}}, "is not a region tag"),
        ({"regions": {REGION: {"namespace": "Prod"}}}, "namespace of kubernetes has 'Prod'"),
        ({"regions": {REGION: {"service_account": "gateway"}}}, "belong together"),
        ({"regions": {REGION: {"cpu": 0.01}}}, "cpu of kubernetes must be from 0.1"),
        ({"regions": {REGION: {"load_balancer": True}}}, "needs load_balancer_sources"),
        ({"regions": {REGION: {"egress_cidrs": ["here"]}}}, "'here' is no range"),
        ({"regions": {REGION: {}}, "image": "gateway:1"}, "not pinned by a digest"),
        (
            {"regions": {REGION: {}}, "image": IMAGE, "python_image": IMAGE},
            "Pods run either image",
        ),
        (
            {"regions": {REGION: {}}, "user_labels": {"team": "the data team"}},
            "user_labels of kubernetes cannot have",
        ),
    ],
)
def test_what_cannot_be_is_refused(section: dict[str, Any], said: str) -> None:
    settings = parse_clouds({"kubernetes": {"image": IMAGE, **section}})
    with pytest.raises(ConfigurationInvalid, match=said):
        settings.open(CredentialSources())


def test_an_archive_of_an_image_is_for_instances_and_pods_need_a_name() -> None:
    archive = {"image": "https://files.example/gw.tar?signature=1", "image_sha256": "ab" * 32}
    with pytest.raises(ConfigurationInvalid, match="Pods run either image") as caught:
        parse_clouds({**SETTINGS, **archive}).open(CredentialSources())
    assert "signature" not in str(caught.value)
    section = {"regions": {REGION: {"context": "production"}}, "image": IMAGE}
    settings = parse_clouds({**archive, "gcp": {}, "kubernetes": section})
    assert settings.clouds["kubernetes"]["image"] == IMAGE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("2", 2.0), ("500m", 0.5), ("1k", 1e3), ("1.5Gi", 1.5 * 1024**3), ("1e3", 1e3)],
        *[("3M", 3e6), ("12E", 12e18), ("1E3", 1e3), ("none", 0.0)],
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


def quota(resource: str, hard: str, used: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "team"},
        "status": {"hard": {resource: hard}, "used": {resource: used}},
    }


@pytest.mark.parametrize(
    ("resource", "hard", "used", "left", "lacking"),
    [
        *[("requests.cpu", "10", "5500m", 2, "pods"), ("limits.memory", "10Gi", "3Gi", 2, "pods")],
        *[("pods", "3", "3", 0, "pods"), ("count/jobs.batch", "7", "4", 3, "jobs")],
        ("count/secrets", "7", "4", 3, "secrets"),
    ],
)
def test_what_a_quota_leaves(resource: str, hard: str, used: str, left: int, lacking: str) -> None:
    place = ClusterRegion(cpu=2.0, memory_gib=3.0)
    [found] = instances_left(REGION, place, [quota(resource, hard, used)])
    assert (found.region, found.instances) == (REGION, left)
    assert found.name == f"ResourceQuota team ({resource}) of namespace default"
    full = [quota(resource, hard, hard)]
    said = {one: exhausted(place, full, one) for one in ("jobs", "pods", "secrets", "services")}
    # A quota has no say in the refusal of what it does not count.
    assert {one for one, text in said.items() if text} == {lacking}
    assert said[lacking] == f"ResourceQuota team ({resource}) of namespace default"
