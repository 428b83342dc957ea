"""Settings of each cloud: what the pages say of them, and that no SDK is needed to read them."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.test_imports import loaded_by

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.aws import AwsOptions
from skyplane_orchestration.provision.azure import AzureOptions
from skyplane_orchestration.provision.cloud_registry import parse_clouds
from skyplane_orchestration.provision.gcp import GcpOptions
from skyplane_orchestration.security.store_credentials import CredentialSources
from strict_clouds.arm import SUBSCRIPTION
from strict_clouds.gce import PROJECT

#: Cloud -> its options, and a module of its SDK.
CLOUDS: Final[dict[str, tuple[Any, str]]] = {
    "aws": (AwsOptions(), "botocore.session"),
    "azure": (AzureOptions(SUBSCRIPTION), "azure.mgmt.core"),
    "gcp": (GcpOptions(PROJECT), "google.api_core.exceptions"),
}
SETTINGS: Final = {
    "image": f"registry.example/gateway@sha256:{'0' * 64}",
    "control_cidrs": ["203.0.113.7/32"],
    "aws": {},
    "azure": {"subscription_id": SUBSCRIPTION},
    "gcp": {"project": PROJECT},
}
clouds = pytest.mark.parametrize("cloud", CLOUDS)


def test_reading_settings_loads_no_sdk() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provision.cloud_registry import parse_clouds;"
        f"parse_clouds({SETTINGS})"
    )
    assert loaded.isdisjoint(("azure", "boto3", "botocore", "google", "msal"))


@clouds
def test_the_extra_is_named(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"skyplane_orchestration.provision.{cloud}"
    for name in [one for one in sys.modules if one.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, CLOUDS[cloud][1], None)
    settings = parse_clouds(SETTINGS).only(cloud)
    with pytest.raises(MissingExtra, match=f"the provisioner '{cloud}' needs the extra '{cloud}'"):
        settings.open(CredentialSources())


@clouds
@pytest.mark.parametrize("mark", ["clouds_file", "private_clouds_file"])
def test_the_clouds_files_of_the_page_can_be_used(repository: Path, cloud: str, mark: str) -> None:
    page = (repository / f"docs/how-to/{cloud}.md").read_text()
    block = re.search(rf"<!-- test: {mark} -->\s*```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    settings = parse_clouds(yaml.safe_load(block[1]))
    assert settings.open(CredentialSources()).name == "cloud"


@clouds
def test_the_page_has_every_option(repository: Path, cloud: str) -> None:
    page = (repository / f"docs/reference/options-{cloud}.md").read_text()
    table = page.partition("\n\n## ")[0]
    options, _ = CLOUDS[cloud]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert named == {field.name for field in fields(options)}
