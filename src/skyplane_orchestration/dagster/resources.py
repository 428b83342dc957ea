"""`SkyplaneResource`: opens the client of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from pydantic import Field, field_validator

from skyplane_orchestration.client_settings import MEANINGS, ClientSettings
from skyplane_orchestration.dagster.one_op import Event, OneOp

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import GatewayPlace
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.provision.provisioner import Finding
    from skyplane_orchestration.security.store_credentials import CredentialSources


_SETTINGS: Final = {one.name: one for one in fields(ClientSettings)}


def _setting(name: str, **more: Any) -> Any:
    """The field of a setting of clients, with its default and what it is."""
    one = _SETTINGS[name]
    default = {} if one.default is MISSING else one.default
    return Field(default=default, description=MEANINGS[name], **more)


class SkyplaneResource(
    dg.ConfigurableResource,  # type: ignore[type-arg]
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
):
    """Settings that all processes of one Dagster deployment share, since ops may run in several."""

    deployment: str = _setting("deployment")
    fleet_secret: str | None = _setting("fleet_secret", repr=False)
    grid: str = _setting("grid")
    learned_grid: str | None = _setting("learned_grid")
    provisioner: str = _setting("provisioner")
    hosts_file: str | None = _setting("hosts_file")
    clouds_file: str | None = _setting("clouds_file")
    clouds: dict[str, Any] | None = _setting("clouds", repr=False)
    run_root: str | None = _setting("run_root")
    processes_per_instance: int | None = _setting("processes_per_instance", ge=1)
    max_active_fleets: int | None = _setting("max_active_fleets", ge=1)
    gateway_credentials: str = _setting("gateway_credentials")
    manifest_key: str | None = _setting("manifest_key")
    gateway_settings: dict[str, Any] = _setting("gateway_settings")
    start_within_s: float = _setting("start_within_s", gt=0)
    value_of_time_usd_per_hour: float = _setting("value_of_time_usd_per_hour", ge=0)
    lease_s: float = _setting("lease_s", gt=0)
    hard_end_s: float = _setting("hard_end_s", gt=0)

    @field_validator("processes_per_instance", "max_active_fleets", mode="wrap")
    @classmethod
    def _from_environment(cls, value: object, check: Callable[[object], object]) -> object:
        """Until a run reads the environment, `EnvVar.int` is the number 0."""
        return value if isinstance(value, type(dg.EnvVar.int(""))) else check(value)

    @field_validator("clouds", mode="before")
    @classmethod
    def _with_sections(cls, clouds: object) -> object:
        """Dagster refuses the null that an empty section of a YAML file is."""
        if not isinstance(clouds, dict):
            return clouds
        return {name: {} if section is None else section for name, section in clouds.items()}

    def run(
        self,
        context: dg.AssetExecutionContext,
        *,
        job: TransferJob | None = None,
        partition_key: str | None = None,
        manifest: str | None = None,
        gateways: GatewayPlace = "auto",
        one_fleet: bool = False,
    ) -> Iterator[Event]:
        """Copy for the selected assets inside this op: plan, provision, transfer and teardown.

            yield from skyplane.run(context=context)

        The assets are those of `skyplane_assets`. With a job, the function may also be an
        ordinary asset. If some transfers fail, the others still run, and the op fails at the end.
        A retry or a re-execution continues a failed transfer. An interruption of the op takes the
        gateways down; `build_skyplane_cleanup_sensor` does so after a kill.

        Args:
            job: in place of the job of the asset, which is then the only one of the op.
                `{partition_key}` in it is replaced by the key of the partition.
            partition_key: that of `context`, for a job whose code has written it in another form
                than `{partition_key}`, such as `2026/01/31`.
            manifest: path or URL for the list of all objects, in the format of its suffix.
                `{asset_key}` and `{partition_key}` in it are replaced.
            gateways: `auto`: inside this process for small jobs: up to 64 MB, or 4 GB in one
                region; beside instances up to 1 GB. `always`: apart; `never`: always inside.
            one_fleet: copy to the destinations of all selected assets at the same time, over one
                fleet: what they share of the way is sent once. Their jobs differ in the destination
                alone. By default one after the other, each with gateways of its own.

        Yields the result of each asset with its metadata and data version, and the results of its
        check.

        Raises dagster.Failure, which Dagster retries only if a retry can help.
        """
        yield from OneOp(self, context, gateways, one_fleet).run(job, manifest, partition_key)

    def client(self, identity: RunIdentity, gateways: GatewayPlace = "always") -> Client:
        """A client for a run; `gateways` as in `run`. Raises ConfigurationInvalid."""
        return self._settings().client(identity, gateways, self.credential_sources())

    def check(self) -> tuple[Finding, ...]:
        """Whether fleets can be brought up; `text` says what is there, or what is missing.

        Raises ConfigurationInvalid.
        """
        from skyplane_orchestration.model.identity import RunIdentity

        return self.client(RunIdentity(self.deployment, "dagster", "check")).check_provisioner()

    def command(self, *words: str) -> str:
        """A command line of `skyplane-orch` that finds the fleets of this resource."""
        return self._settings().command(*words)

    def _settings(self) -> ClientSettings:
        given = {name: getattr(self, name) for name in _SETTINGS if hasattr(self, name)}
        files = {name: given[name] for name in ("hosts_file", "clouds_file", "run_root")}
        paths = {name: Path(path) if path else None for name, path in files.items()}
        return ClientSettings(**{**given, **paths})

    def credential_sources(self) -> CredentialSources:
        """The resolver of `credential_ref`s; override this to add schemes."""
        from skyplane_orchestration.security.store_credentials import CredentialSources

        return CredentialSources()
