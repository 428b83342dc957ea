"""`SkyplaneHook`: opens the client of a task's run."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.hooks.credential_refs import CREDENTIAL_SCHEME
from skyplane_orchestration.hooks.settings import Settings
from skyplane_orchestration.hooks.store_connections import (
    credentials_from_connection,
    location_from_connection,
)
from skyplane_orchestration.hooks.time_limit import stop_at
from skyplane_orchestration.lineage.facts import dataset_of
from skyplane_orchestration.model.argument_checks import checks_methods
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.text_values import refuse_unrendered
from skyplane_orchestration.provider_info import (
    CONNECTION_FIELDS,
    CONNECTION_TYPE,
    UI_FIELD_BEHAVIOUR,
)
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources, purpose_of
from skyplane_orchestration.transfer.progress_log import heading
from skyplane_orchestration.transfer.task_log import RunLog, log_result

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_gateway.stores import Credentials
    from skyplane_orchestration.hooks.connection_fields import ConnectionLike
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.transfer.client_context import StopAt


@checks_methods
class SkyplaneHook(BaseHook):
    """Opens clients.

    Args:
        skyplane_conn_id: connection of type `skyplane`. Its password is the fleet secret. Its
            extra fields are `deployment`, `provisioner`, `hosts_file`, `hosts`, `clouds_file`,
            `clouds`, `grid`, `learned_grid`, `run_root`, `processes_per_instance`,
            `max_active_fleets`, `gateway_credentials`, `manifest_key`, `gateway_settings`,
            `start_within_s`, `lease_s` and `hard_end_s`.
            Without the default connection, the secret is a file of the worker's user and the
            deployment is `local`. A host in `hosts` may be a connection of type `ssh`:
            `{"conn_id": "ssh_gw1"}`. A cloud in `clouds` may have the credentials of a connection:
            `{"credential_ref": "airflow:aws_gateways"}`.
    """

    conn_name_attr = "skyplane_conn_id"
    default_conn_name = "skyplane_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Skyplane"

    def __init__(self, skyplane_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        refuse_unrendered("skyplane_conn_id", skyplane_conn_id)
        super().__init__(**kwargs)
        self.skyplane_conn_id = skyplane_conn_id

    @cached_property
    def settings(self) -> Settings:
        """Raises ConfigurationInvalid: the connection is missing or cannot be used."""
        try:
            connection = self.get_connection(self.skyplane_conn_id)
        except AirflowNotFoundException as error:
            if self.skyplane_conn_id == self.default_conn_name:
                return Settings()
            raise ConfigurationInvalid(
                f"there is no connection {self.skyplane_conn_id!r}; create one of type "
                f"{CONNECTION_TYPE!r}, or omit skyplane_conn_id"
            ) from error
        return Settings.from_connection(connection)

    def identity(self, context: Context, fleet_name: str) -> RunIdentity:
        """The identity of the run: the same for all tasks of a fleet and all tries."""
        instance = context["ti"]
        index = instance.map_index
        return RunIdentity(
            deployment=self.settings.deployment,
            owner=instance.dag_id,
            run=instance.run_id,
            group=fleet_name,
            map_index=-1 if index is None else index,
        )

    def client(
        self, context: Context, fleet_name: str, gateways: GatewayPlace = "always"
    ) -> Client:
        """A client for the run of `context`, in the time of its task.

        Raises ConfigurationInvalid.
        """
        return self.client_of(self.identity(context, fleet_name), gateways, stop_at(context))

    def client_of(
        self,
        identity: RunIdentity,
        gateways: GatewayPlace = "always",
        stop_at: StopAt | None = None,
    ) -> Client:
        """A client for a run that another process has begun. Raises ConfigurationInvalid."""
        settings = self.settings.with_ssh_connections(self._ssh_connection)
        sources = CredentialSources({CREDENTIAL_SCHEME: self.resolve_credentials})
        return settings.client(identity, gateways, sources, stop_at=stop_at)

    def run(
        self,
        context: Context,
        job: TransferJob,
        *,
        fleet_name: str | None = None,
        gateways: GatewayPlace = "auto",
        manifest: str | None = None,
    ) -> TransferResult:
        """Run a job inside a task of one's own, as `SkyplaneTransferOperator` does in one task.

        Reports both ends to Airflow's hook-level lineage, also if the job fails. A retry joins the
        running transfer, or continues the failed one.

        Args:
            fleet_name: name of the fleet in the run; None: the id of the task.
            gateways, manifest: see `SkyplaneTransferOperator`.

        Raises as `Client.run`.
        """
        for name, value in (("job", job), ("manifest", manifest), ("fleet_name", fleet_name)):
            refuse_unrendered(name, value)
        client = self.client(context, fleet_name or context["ti"].task_id, gateways)
        job = self.placed_job(job)
        self.log.info("%s", heading(job))
        self._report_ends(job)
        result = client.run(job, **RunLog(self.log, []).arguments(manifest))
        log_result(self.log, result)
        return result

    def _report_ends(self, job: TransferJob) -> None:
        # Imported here: a task that only opens a client does not need it.
        from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

        collector: Any = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
        collector.add_input_asset(context=self, uri=dataset_of(job.source).asset_uri)
        collector.add_output_asset(context=self, uri=dataset_of(job.destination).asset_uri)

    def resolve_credentials(self, connection_id: str, location: Location) -> Credentials | None:
        """Raises ConfigurationInvalid: the connection is missing or cannot be used."""
        connection = self._store_connection(connection_id, location)
        return credentials_from_connection(connection, connection_id, location)

    def placed(self, location: Location) -> Location:
        """The location with the endpoint and the options of its connection, if it names one.

        What the location itself says counts first. Raises ConfigurationInvalid.
        """
        scheme, _, connection_id = location.credential_ref.partition(":")
        if scheme != CREDENTIAL_SCHEME:
            return location
        connection = self._store_connection(connection_id, location)
        return location_from_connection(connection, connection_id, location)

    def placed_job(self, job: TransferJob) -> TransferJob:
        """The job with both ends `placed`."""
        return replace(
            job, source=self.placed(job.source), destination=self.placed(job.destination)
        )

    def _store_connection(self, connection_id: str, location: Location) -> ConnectionLike:
        what = f" for {purpose_of(location)}; create it, or name another one"
        return self._connection(connection_id, what)

    def _connection(self, connection_id: str, what: str) -> ConnectionLike:
        """Raises ConfigurationInvalid: the connection is missing."""
        try:
            found: ConnectionLike = self.get_connection(connection_id)
        except AirflowNotFoundException as error:
            raise ConfigurationInvalid(f"there is no connection {connection_id!r}{what}") from error
        return found

    def _ssh_connection(self, connection_id: str) -> ConnectionLike:
        what = f", which is a host in the skyplane connection {self.skyplane_conn_id!r}"
        return self._connection(connection_id, what)

    def get_conn(self) -> Settings:
        return self.settings

    def test_connection(self) -> tuple[bool, str]:
        """Check the connection's fields, its grid, and whether its provisioner can work."""
        try:
            client = self.client_of(RunIdentity(self.settings.deployment, "airflow", "test"))
            findings = list(client.check_provisioner())
        except SkyplaneError as error:
            return False, str(error)
        if self.settings.secret is None:
            text = (
                "a file of the worker's user; without a password in the connection, all tasks of a"
                " fleet must run on one machine"
            )
            findings.append(Finding("fleet secret", True, text))
        grid = _grid(client)
        if all(one.is_ok for one in (grid, *findings)):
            texts = [f"{one.name}: {one.text}" for one in findings]
            return True, "; ".join(
                [f"deployment {self.settings.deployment!r}, {grid.text}", *texts]
            )
        problems = [one for one in (grid, *findings) if one.is_warning or not one.is_ok]
        # What fails comes first.
        problems.sort(key=lambda one: one.is_ok)
        return False, "; ".join(f"{one.name}: {one.text}" for one in problems)

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """The fields of the form for Airflow before 3.2; later releases read `provider_info`."""
        from flask_appbuilder.fieldwidgets import BS3TextFieldWidget
        from wtforms import StringField

        return {
            name: StringField(
                field["label"], description=field["description"], widget=BS3TextFieldWidget()
            )
            for name, field in CONNECTION_FIELDS.items()
        }

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The layout of the form for Airflow before 3.2; later releases read `provider_info`."""
        return {name.replace("-", "_"): value for name, value in UI_FIELD_BEHAVIOUR.items()}


def _grid(client: Client) -> Finding:
    try:
        return Finding("grid", True, f"{len(client.grid.regions)} regions")
    except SkyplaneError as error:
        return Finding("grid", False, str(error))
