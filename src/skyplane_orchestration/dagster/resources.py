"""`SkyplaneResource`: opens the client of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, field_validator

from skyplane_orchestration.dagster.one_op import Event, OneOp
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import GatewayPlace
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.provision.choice import ProvisionerChoice
    from skyplane_orchestration.provision.provisioner import Finding
    from skyplane_orchestration.security.store_credentials import CredentialSources


class SkyplaneResource(
    dg.ConfigurableResource,  # type: ignore[type-arg]
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
):
    """Settings that all processes of one Dagster deployment share, since ops may run in several."""

    deployment: str = Field(
        default=DEFAULT_DEPLOYMENT,
        description="Name of the installation, such as prod-eu; a sweep removes only its fleets.",
    )
    fleet_secret: str | None = Field(
        default=None,
        repr=False,
        description="Secret of at least 32 bytes, as EnvVar. Without it, a file of this user,"
        " for one machine only.",
    )
    grid: str = Field(default="shipped", description="Name or directory of the grid to plan on.")
    provisioner: str = Field(
        default="local",
        description="Where gateways run: local, as processes of this machine; ssh, of the machines"
        " in hosts_file; cloud, on instances that it launches as clouds says; aws, gcp or azure,"
        " on instances in that cloud only.",
    )
    hosts_file: str | None = Field(
        default=None, description="File with the machines of each region, for ssh."
    )
    clouds_file: str | None = Field(
        default=None,
        description="File with what instances run and the settings of each cloud, for cloud.",
    )
    clouds: dict[str, Any] | None = Field(
        default=None,
        repr=False,
        description="The content of such a file, in its place: image, control_cidrs, and an object"
        " for each cloud.",
    )
    run_root: str | None = Field(
        default=None, description="Directory of the gateways' files on this machine."
    )
    processes_per_instance: int | None = Field(
        default=None,
        ge=1,
        description="Gateway processes of each instance. Without it, as many as give each processor"
        " of the machine a gateway, 8 at most.",
    )
    max_active_fleets: int | None = Field(
        default=None,
        ge=1,
        description="Highest number of living fleets of the deployment. A run that needs another"
        " one waits. Without it, there is no limit.",
    )
    gateway_settings: dict[str, Any] = Field(
        default={},
        description="More fields of every gateway's configuration, such as ack_deadline_s and"
        " stall_deadline_s.",
    )
    start_within_s: float = Field(
        default=900.0, gt=0, description="Longest time from provision to transfer."
    )
    lease_s: float = Field(
        default=120.0, gt=0, description="Gateways end after this time without contact."
    )
    hard_end_s: float = Field(
        default=86400.0, gt=0, description="Gateways end after this time in any case."
    )

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

        Yields the result of each asset with its metadata and data version, and the results of its
        check.

        Raises dagster.Failure, which Dagster retries only if a retry can help.
        """
        yield from OneOp(self, context, gateways).run(job, manifest, partition_key)

    def client(self, identity: RunIdentity, gateways: GatewayPlace = "always") -> Client:
        """A client for a run; `gateways` as in `run`. Raises ConfigurationInvalid."""
        # Imported here: the client and its planner are not loaded with the definitions.
        from skyplane_orchestration.client import Client, FleetTimes
        from skyplane_orchestration.security.authority import FleetSecret

        return Client(
            identity=identity,
            provisioner=self._choice().open(gateways, self.credential_sources()),
            secret=FleetSecret.from_text(self.fleet_secret) if self.fleet_secret else None,
            grid=self.grid,
            credentials=self.credential_sources(),
            times=FleetTimes(self.start_within_s, self.lease_s, self.hard_end_s),
            max_active_fleets=self.max_active_fleets,
        )

    def check(self) -> tuple[Finding, ...]:
        """Whether fleets can be brought up; `text` says what is there, or what is missing.

        Raises ConfigurationInvalid.
        """
        from skyplane_orchestration.model.identity import RunIdentity

        return self.client(RunIdentity(self.deployment, "dagster", "check")).check_provisioner()

    def command(self, *words: str) -> str:
        """A command line of `skyplane-orch` that finds the fleets of this resource."""
        return self._choice().command(self.deployment, *words)

    def _choice(self) -> ProvisionerChoice:
        from skyplane_orchestration.provision.choice import ProvisionerChoice

        return ProvisionerChoice(
            provisioner=self.provisioner,
            run_root=Path(self.run_root) if self.run_root else None,
            hosts_file=Path(self.hosts_file) if self.hosts_file else None,
            clouds_file=Path(self.clouds_file) if self.clouds_file else None,
            clouds=self.clouds,
            processes_per_instance=self.processes_per_instance,
            gateway_settings=self.gateway_settings,
        )

    def credential_sources(self) -> CredentialSources:
        """The resolver of `credential_ref`s; override this to add schemes."""
        from skyplane_orchestration.security.store_credentials import CredentialSources

        return CredentialSources()
