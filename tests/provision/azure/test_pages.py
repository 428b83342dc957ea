"""The pages about Azure say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from skyplane_orchestration.provision.azure import AzureOptions
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.security.credentials import CredentialSources


@pytest.mark.parametrize("mark", ["clouds_file", "private_clouds_file"])
def test_the_clouds_files_of_the_page_can_be_used(repository: Path, mark: str) -> None:
    page = (repository / "docs/how-to/azure.md").read_text()
    block = re.search(rf"<!-- test: {mark} -->\s*```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    settings = parse_clouds(yaml.safe_load(block[1]))
    assert settings.open(CredentialSources()).name == "cloud"


def test_the_page_has_every_option(repository: Path) -> None:
    page = (repository / "docs/reference/options-azure.md").read_text()
    table = page.partition("\n\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {
        field.name for field in fields(AzureOptions)
    }
