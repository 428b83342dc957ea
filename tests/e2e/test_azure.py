"""From S3 to Azure by gateways that have the connection string; keys that Azure cannot hold."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.storage.blob import ContainerClient
from tests.e2e.test_cli_cp import answer_of, orch_here
from tests.faults import azurite

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azurite.Server]:
    try:
        with azurite.running(tmp_path_factory.mktemp("azurite")) as made:
            yield made
    except azurite.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def container(server: azurite.Server) -> tuple[azurite.Server, str]:
    """The server, and the name of a container."""
    return server, f"box-{uuid.uuid4().hex[:8]}"


def connected(home: Home, azure: azurite.Server) -> tuple[Home, str]:
    """The home with a connection string in its environment, and that string."""
    url = f"{azure.url}/{azure.account}"
    connection = f"AccountName={azure.account};AccountKey={azure.account_key};BlobEndpoint={url};"
    return replace(home, more={"AZURE_STORAGE_CONNECTION_STRING": connection}), connection


def test_escaped_keys_are_verified(
    home: Home, container: tuple[azurite.Server, str], tmp_path: Path
) -> None:
    azure, name = container
    home, connection = connected(home, azure)
    source = tmp_path / "source"
    source.mkdir()
    for file in ("a\\b", "ends in.", "plain"):
        (source / file).write_text(file)
    ends = (f"{source}/", f"az://{azure.account}/{name}/to/")
    with ContainerClient.from_connection_string(connection, name) as client:
        client.create_container()
        escape = ("--on-illegal-key", "escape", "--json")
        assert answer_of(orch_here(home, "cp", "-r", *ends, *escape))["copied"] == 3
        report = answer_of(orch_here(home, "verify", "-r", *ends, *escape, "--extra"))
        assert (report["equal"], report["extra"]) == (3, 0)
        client.delete_blob("to/a\N{SINGLE HIGH-REVERSED-9 QUOTATION MARK}5Cb")
        report = answer_of(orch_here(home, "verify", "-r", *ends, *escape), code=1)
        assert [row["kind"] for row in report["differences"]] == ["missing"]
        assert report["differences"][0]["source"].endswith("a\\b")


@pytest.mark.long
def test_marks_of_folders_become_folders(
    home: Home, container: tuple[azurite.Server, str], tmp_path: Path
) -> None:
    """As Hadoop, Spark and AzCopy write them; the source is named as these name it."""
    azure, name = container
    home, connection = connected(home, azure)
    ends = (
        f"abfss://{name}@{azure.account}.dfs.core.windows.net/in/", f"{tmp_path}/out/",
        "--src-region", "azure:westeurope", "--json",
    )  # fmt: skip
    with ContainerClient.from_connection_string(connection, name) as client:
        client.create_container()
        for mark in ("in", "in/full", "in/empty"):
            client.upload_blob(mark, b"", metadata={"hdi_isfolder": "true"})
        client.upload_blob("in/full/part-0", b"rows")
    result = answer_of(orch_here(home, "cp", "-r", *ends))
    assert (result["copied"], result["failed"], result["warnings"]) == (3, 0, [])
    assert (tmp_path / "out/full/part-0").read_text() == "rows"
    assert (tmp_path / "out/empty").is_dir()
    assert answer_of(orch_here(home, "sync", *ends))["copied"] == 0
    report = answer_of(orch_here(home, "verify", "-r", *ends))
    assert (report["is_equal"], report["equal"]) == (True, 3)
    assert home.traces() == []
