"""`SkyplaneFleetOperator`: the base of the operators that start fleets."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.configuration import conf

from skyplane_orchestration.errors import TooManyFleets
from skyplane_orchestration.operators.arguments import Flag
from skyplane_orchestration.operators.job import SkyplaneJobOperator
from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait, OnFull
from skyplane_orchestration.transfer.task_log import log_full

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: Airflow's own default of `deferrable`.
DEFAULT_DEFERRABLE: Final[bool] = conf.getboolean("operators", "default_deferrable", fallback=False)


class SkyplaneFleetOperator(SkyplaneJobOperator):
    """Base of the operators that start a fleet, or wait while the deployment has too many.

    Args:
        deferrable: free the slot of the worker during such a wait. Default: `default_deferrable`
            of Airflow's section `operators`.
    """

    deferrable: bool

    def __init__(self, *, deferrable: Flag = DEFAULT_DEFERRABLE, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def on_full(self, context: Context) -> OnFull:
        """What the client calls before each pause of a wait for another fleet's end."""
        return partial(self._wait, context)

    def _wait(self, context: Context, error: TooManyFleets, wait: FleetWait) -> None:
        """Log the wait; a deferrable task also frees its slot. Raises TaskDeferred.

        Raises `error` if `execution_timeout` ends before the next look.
        """
        log_full(self.log, error, wait)
        if not self.deferrable:
            return
        # Imported here: its module differs between Airflow 2 and 3.
        from airflow.providers.common.compat.standard.triggers import TimeDeltaTrigger

        pause_s = wait.pause_s(random.SystemRandom())
        deadline_unix_s = self.deadline_unix_s(context)
        if deadline_unix_s is not None and time.time() + pause_s > deadline_unix_s:
            raise error
        after = wait.after(pause_s)
        self.defer(
            trigger=TimeDeltaTrigger(timedelta(seconds=pause_s)),
            method_name="look_again",
            kwargs={"looks": after.looks, "waited_s": after.waited_s},
        )

    def look_again(
        self,
        context: Context,
        event: Mapping[str, Any] | None,
        # `dag.test` passes on the event, but none of the arguments of `defer`.
        looks: int = 0,
        waited_s: float = 0.0,
    ) -> dict[str, Any]:
        """Continue after a pause; returns and raises as `execute`."""

        def work(context: Context, client: Client) -> dict[str, Any]:
            # Before the source is listed once more.
            try:
                client.require_room()
            except TooManyFleets as error:
                self._wait(context, error, FleetWait(looks, waited_s))
            return self.work(context, client)

        return self._run(context, work)

    def deadline_unix_s(self, context: Context) -> float | None:
        """When the task stops what it has begun."""
        # Imported here: the client and its planner are not loaded when a DAG is parsed.
        from skyplane_orchestration.hooks.time_limit import deadline_unix_s

        return deadline_unix_s(self.execution_timeout, context)
