"""A resource that opens a fake client, and assets on it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.clouds.accounts import account, aws_keys  # noqa: F401
from tests.fake_client import FakeClient

from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_transfer_asset
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.identity import RunIdentity

# Each instance of Dagster in memory reads some fifty scripts of migrations, which takes a sixth of
# the time of its tests. They are read once.
_read_scripts = ScriptDirectory.from_config
_scripts: dict[str | None, ScriptDirectory] = {}


def _read_once(config: Config) -> ScriptDirectory:
    folder = config.get_main_option("script_location")
    if folder not in _scripts:
        _scripts[folder] = _read_scripts(config)
    return _scripts[folder]


ScriptDirectory.from_config = staticmethod(_read_once)  # type: ignore[method-assign]

#: A resource is made anew for every run, from its settings: this is what survives.
_CLIENTS: dict[str, FakeClient] = {}


class FakeResource(SkyplaneResource):
    """Opens the fake client of its name."""

    name: str

    def client(self, identity: RunIdentity, gateways: GatewayPlace = "always") -> Any:
        client = _CLIENTS[self.name]
        client.calls.append(("identity", identity))
        client.places.append(gateways)
        client.identity = identity
        return client


@pytest.fixture(scope="module", autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    """SQLAlchemy logs a traceback when what Dagster has left open is collected.

    CPython 3.11 parses source for it. If that comes in the middle of an `ast.parse`, this fails
    with "AST constructor recursion depth mismatch".
    """
    yield
    gc.collect()


def paris(**options: Any) -> dg.AssetsDefinition:
    """A transfer asset with five ops."""
    return build_skyplane_transfer_asset(
        "paris", source="s3://a/x/", destination="s3://b/y/", **options
    )


@dataclass
class Lab:
    """Materializes assets with one fake client."""

    client: FakeClient
    resource: FakeResource

    def materialize(
        self,
        asset: dg.AssetsDefinition,
        partition_key: str | None = None,
        instance: dg.DagsterInstance | None = None,
        selection: Sequence[str] | None = None,
        tags: Mapping[str, str] | None = None,
        **resources: Any,
    ) -> dg.ExecuteInProcessResult:
        opened = nullcontext(instance) if instance else dg.DagsterInstance.ephemeral()
        with opened as used:
            return dg.materialize(
                [asset],
                resources={"skyplane": self.resource, **resources},
                instance=used,
                partition_key=partition_key,
                selection=selection,
                tags=tags,
                raise_on_error=False,
            )

    def run(
        self, asset: dg.AssetsDefinition, selection: dg.AssetSelection
    ) -> dg.ExecuteInProcessResult:
        """Run a job of a selection, which may leave checks out."""
        definitions = dg.Definitions(
            assets=[asset],
            jobs=[dg.define_asset_job("selected", selection)],
            resources={"skyplane": self.resource},
        )
        job = definitions.resolve_job_def("selected")
        return job.execute_in_process(raise_on_error=False)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = request.node.nodeid
    _CLIENTS[name] = FakeClient()
    yield Lab(_CLIENTS[name], FakeResource(deployment="test", name=name))
    del _CLIENTS[name]
