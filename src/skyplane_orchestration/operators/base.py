"""What all operators share: the client of their run, errors, and being killed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseOperator,
)

from skyplane_orchestration.errors import SkyplaneError, TransferFailed
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.operators.templates import refuse_unrendered

if TYPE_CHECKING:
    import jinja2
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.hooks.skyplane import SkyplaneHook

DEFAULT_CONNECTION: Final = "skyplane_default"

#: Failed objects that are named in a task's log; the manifest has all.
_LOGGED_FAILURES: Final = 20

#: Lines of a gateway's log that are put into a task's log.
_LOGGED_LINES: Final = 40


class SkyplaneOperator(BaseOperator):
    """Base of the operators.

    Args:
        skyplane_conn_id: see `SkyplaneHook`; the default one may be missing.
        fleet_name: which fleet of the run this task belongs to. Provision, transfer and
            teardown find each other by it, across workers and tries; the id of the task
            group when None, `default` outside of any.
    """

    template_fields: Sequence[str] = ("skyplane_conn_id", "fleet_name")
    ui_color: str = "#d6eaf8"

    def __init__(
        self,
        *,
        skyplane_conn_id: str = DEFAULT_CONNECTION,
        fleet_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.skyplane_conn_id = skyplane_conn_id
        self.fleet_name = fleet_name
        self._is_executing = False

    @cached_property
    def hook(self) -> SkyplaneHook:
        # Here, so that parsing a DAG file does not load the client and its planner.
        from skyplane_orchestration.hooks.skyplane import SkyplaneHook

        return SkyplaneHook(skyplane_conn_id=self.skyplane_conn_id)

    def client(self, context: Context) -> Client:
        return self.hook.client(context, self.fleet_name or self.default_fleet_name)

    @property
    def default_fleet_name(self) -> str:
        group = self.task_group
        return (group.group_id if group else None) or "default"

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """As Airflow does, and every text of a job or a location too.

        Airflow renders documents, not dataclasses. `work` takes both.
        """
        if isinstance(content, TransferJob | Location):
            # The document is new: ids of what was rendered before say nothing about it.
            content, seen_oids = content.to_dict(), set()
        return super().render_template(content, context, jinja_env, seen_oids)

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the task's work.

        Raises:
            AirflowFailException: a retry cannot help. AirflowException: it can.
        """
        self._is_executing = True
        try:
            for name in self.template_fields:
                refuse_unrendered(name, getattr(self, name))
            return self.work(context, self.client(context))
        except SkyplaneError as error:
            self.report_failures(context, error)
            is_final = error.is_permanent and not _was_cancelled(error)
            kind = AirflowFailException if is_final else AirflowException
            raise kind(f"{error.code}: {error}") from error
        finally:
            self._is_executing = False

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        """The task's work; what it returns goes to XCom. Raises SkyplaneError."""
        raise NotImplementedError

    def report_failures(self, context: Context, error: SkyplaneError) -> None:
        """Name the objects that failed, and leave the result for callbacks."""
        result = error.result if isinstance(error, TransferFailed) else None
        if not isinstance(result, TransferResult):
            return
        for failure in result.failures[:_LOGGED_FAILURES]:
            self.log.error("%s: %s (%s)", failure.source, failure.reason, failure.code)
        if result.failed > _LOGGED_FAILURES:
            self.log.error("and %d more", result.failed - _LOGGED_FAILURES)
        if result.unfinished:
            self.log.error(
                "the transfer ended before it reached %s", counted(result.unfinished, "object")
            )
        if result.resume_handle:
            # The handle is long, and stands in the XCom; a try needs none.
            self.log.info(
                "the next try of this task resumes transfer %s; if no try is left, clear the "
                "task within 24 h",
                result.transfer_key,
            )
        context["ti"].xcom_push(key="failed_transfer", value=result.to_dict())

    def log_tails(self, tails: Mapping[str, str], level: int = logging.INFO) -> None:
        """The ends of the gateways' logs into the task's log."""
        for node, tail in sorted(tails.items()):
            lines = tail.splitlines()[-_LOGGED_LINES:]
            self.log.log(level, "end of the log of %s:\n%s", node, "\n".join(lines))

    def on_kill(self) -> None:
        """Stop what this task has begun, then leave `execute`.

        Airflow 3 only calls this from its SIGTERM handler and lets `execute` go on, Airflow 2
        raises afterwards. Raising here unwinds `execute` in both, and the client takes down
        what it has brought up on the way.
        """
        if not self._is_executing:
            return
        self._is_executing = False
        self.cancel_work()
        raise AirflowException("the task was told to end")

    def cancel_work(self) -> None:
        """Stop remote work that unwinding `execute` would leave running; best effort."""


def _was_cancelled(error: SkyplaneError) -> bool:
    """Whether somebody else has cancelled the transfer that a task waited for.

    A try that Airflow took for dead does so when it wakes and is told to end; the try that
    has joined its transfer in the meantime did not ask for it, and may run again.
    """
    result = error.result if isinstance(error, TransferFailed) else None
    return isinstance(result, TransferResult) and result.state == "cancelled"
