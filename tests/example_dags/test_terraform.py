"""The Terraform modules parse, refer to what they have, and take permissions from the pages."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import hcl2
import pytest
import yaml
from tests.faults.go_programs import Unavailable
from tests.faults.tools import HCLFMT

from skyplane_orchestration.provision.aws import AwsOptions
from skyplane_orchestration.provision.azure import AzureOptions
from skyplane_orchestration.provision.gcp import GcpOptions

MODULES: Final = ("aws", "aws/network", "azure", "azure/self_delete", "gcp")
_OPTIONS: Final = {"aws": AwsOptions, "azure": AzureOptions, "gcp": GcpOptions}


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest, repository: Path) -> Path:
    return repository / "example_dags/terraform" / str(request.param)


def parsed(module: Path) -> dict[str, list[dict[str, Any]]]:
    """The blocks of a module by kind; names without their quotes."""
    blocks: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(module.glob("*.tf")):
        for kind, found in hcl2.loads(path.read_text()).items():
            if kind != "__comments__":
                blocks.setdefault(kind, []).extend(_plain(found))
    return blocks


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.strip('"') if isinstance(value, str) else value


def code_of(module: Path) -> str:
    """The text without comments and descriptions."""
    text = "".join(path.read_text() for path in sorted(module.glob("*.tf")))
    return re.sub(r"^\s*(#|description\b).*$", "", text, flags=re.MULTILINE)


def test_each_reference_has_its_block(module: Path) -> None:
    blocks, code = parsed(module), code_of(module)
    variables = {name for block in blocks.get("variable", []) for name in block}
    assert set(re.findall(r"\bvar\.(\w+)", code)) == variables
    names = {name for block in blocks.get("locals", []) for name in block if "__" not in name}
    assert set(re.findall(r"\blocal\.(\w+)", code)) == names
    made = {
        f"{kind}.{name}"
        for block in blocks["resource"]
        for kind, named in block.items()
        for name in named
    }
    used = re.findall(r"(?<!\bdata\.)\b((?:aws|azurerm|google)_\w+\.\w+)", code)
    assert set(used) <= made
    read = {
        f"{kind}.{name}" for one in blocks.get("data", []) for kind in one for name in one[kind]
    }
    assert set(re.findall(r"\bdata\.(\w+\.\w+)", code)) == read


def test_the_modules_are_formatted(repository: Path) -> None:
    try:
        program = HCLFMT.binary()
    except Unavailable as error:
        pytest.skip(str(error))
    files = sorted((repository / "example_dags/terraform").rglob("*.tf"))
    done = subprocess.run(
        [program, "-check", "-require-no-change", *files], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_permissions_are_those_of_the_pages(repository: Path, cloud: str) -> None:
    module = repository / "example_dags/terraform" / cloud
    code = code_of(module)
    (place,) = re.findall(r'file\("\$\{path\.module\}/(.*?)"\)', code)
    text = (module / place).read_text()
    document = yaml.safe_load(text) if place.endswith("yaml") else json.loads(text)
    # No second list of them.
    assert not re.search(r'"(?:ec2:|compute\.(?!googleapis)|Microsoft\.\w+/)', code)
    assert set(re.findall(r"\blocal\.role\.(\w+)", code)) <= set(document)
    for placeholder in re.findall(r'replace\([^"]*"([^"]+)"|"(role/[\w-]+)",', code):
        assert "".join(placeholder) in text


def test_the_rights_on_buckets_are_those_of_the_page(repository: Path) -> None:
    page = (repository / "docs/reference/objects.md").read_text()
    table = page.partition("## Rights on S3")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith(("| source", "| destination"))]
    code = code_of(repository / "example_dags/terraform/aws")
    assert set(re.findall(r"\bs3:\w+", code)) == set(re.findall(r"\bs3:\w+", "".join(rows)))


@pytest.mark.parametrize("module", MODULES, indirect=True)
def test_outputs_are_settings(module: Path, repository: Path) -> None:
    cloud = module.relative_to(repository / "example_dags/terraform").parts[0]
    outputs = {name: one for block in parsed(module)["output"] for name, one in block.items()}
    if "settings" in outputs:
        given = set(re.findall(r"^    (\w+)\s+=", (module / "outputs.tf").read_text(), re.M))
    else:
        given = set(outputs) - {"policy_arn"}
    assert given
    assert given <= {field.name for field in fields(_OPTIONS[cloud])}
