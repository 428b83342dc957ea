"""`SkyplaneOperator`: the base of all operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    BaseOperator,
)

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, holds_template
from skyplane_orchestration.model.result import TransferResult, failed_result
from skyplane_orchestration.model.text_values import refuse_unrendered
from skyplane_orchestration.operators.arguments import (
    is_entry,
    is_known,
    is_own,
    names_of,
    refuse_misread,
    rendered,
    types_of,
)
from skyplane_orchestration.report.task_documents import FAILED_TRANSFER, RETURN_VALUE
from skyplane_orchestration.transfer.task_log import log_failures

if TYPE_CHECKING:
    import jinja2
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.hooks.skyplane import SkyplaneHook

DEFAULT_CONNECTION: Final = "skyplane_default"


class SkyplaneOperator(BaseOperator):
    """Base of the operators: opens the client, renders templates, maps errors.

    Args:
        skyplane_conn_id: see `SkyplaneHook`; the default connection may be missing.
        fleet_name: name of the fleet in the run. Provision, transfer and teardown find the
            same fleet by it, across workers and tries. None: the id of the task group, or
            `default` outside a group.

    Attributes:
        pushed: name -> what the task has pushed to XCom; None where it has not run in this process.
    """

    ui_color: str = "#d6eaf8"
    #: The `map_index_template` of mapped tasks, where the user gives none.
    default_map_index_template: ClassVar[str | None] = None
    skyplane_conn_id: str
    fleet_name: str | None

    def __init__(
        self,
        *,
        skyplane_conn_id: str = DEFAULT_CONNECTION,
        fleet_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._is_executing = False
        self._unrendered: dict[str, Any] = {}
        self.pushed: dict[str, Any] | None = None
        self.keep(locals())
        if self.map_index_template is None and any(self.iter_mapped_task_groups()):
            self.map_index_template = self.default_map_index_template

    template_fields: Sequence[str] = names_of(__init__)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """All arguments of this package's operators are templates."""
        super().__init_subclass__(**kwargs)
        if is_own(cls):
            cls.template_fields = tuple(types_of(cls))

    def keep(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keep arguments under their names, and check those that are known by now.

        Args:
            given: the local names of an `__init__`.

        Returns the known ones, of their types. Raises ConfigurationInvalid.
        """
        known = {}
        for name, hint in types_of(type(self)).items():
            if name in given:
                setattr(self, name, given[name])
                if is_known(given[name]):
                    known[name] = rendered(hint, given[name], name)
        return known

    def arguments(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Arguments by their names, rendered and of their types; by default all.

        Raises ConfigurationInvalid.
        """
        found, types = {}, types_of(type(self))
        for name in types if names is None else names:
            hint, value = types[name], getattr(self, name)
            refuse_unrendered(name, value)
            given = self._unrendered.get(name, value)
            is_list = isinstance(given, Mapping | list | tuple | set | TransferJob)
            if is_list or is_entry(hint, given):
                refuse_misread(name, given, value, is_entry=not is_list)
            found[name] = rendered(hint, value, name, is_whole=not is_list and not is_known(given))
        return found

    # Airflow reads the template of a mapped task from here, before it makes the task.
    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """As `BaseOperator.partial`, with a default for `map_index_template`."""
        if cls.default_map_index_template is not None:
            kwargs.setdefault("map_index_template", cls.default_map_index_template)
        return super().partial(**kwargs)

    @cached_property
    def hook(self) -> SkyplaneHook:
        # Imported here: the client and its planner are not loaded when a DAG is parsed.
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
        """Render templates, also in the texts of jobs and locations.

        Airflow renders dicts, but not dataclasses; `work` accepts both.
        """
        if isinstance(content, TransferJob | Location):
            # The dict is a new object, so the ids of rendered objects do not apply.
            content, seen_oids = content.to_dict(), set()
        # A native environment makes None of "", and numbers of texts that need no rendering.
        if isinstance(content, str) and not (
            holds_template(content) or "{#" in content or content.endswith(tuple(self.template_ext))
        ):
            return content
        return super().render_template(content, context, jinja_env, seen_oids)

    # Airflow calls this for mapped tasks too, and `render_template` for parts of arguments.
    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], *more: Any, **named: Any
    ) -> None:
        self._unrendered = {name: getattr(parent, name, None) for name in template_fields}
        super()._do_render_template_fields(parent, template_fields, *more, **named)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the task. Raises AirflowException, or AirflowFailException if no retry can help."""
        return self._run(context, self.work)

    def _run(
        self, context: Context, work: Callable[[Context, Client], dict[str, Any]]
    ) -> dict[str, Any]:
        self._is_executing = True
        self.pushed = {}
        try:
            for name, value in self.arguments().items():
                setattr(self, name, value)
            found = work(context, self.client(context))
            if self.do_xcom_push:
                self.pushed[RETURN_VALUE] = found
            return found
        except AirflowTaskTimeout:
            self.report_timeout(context)
            raise
        except SkyplaneError as error:
            result = self.report_failure(context, error)
            # A try that Airflow took for dead may cancel the transfer when it wakes up. The
            # try that has joined the transfer may run again.
            was_cancelled = result is not None and result.state == "cancelled"
            is_final = error.is_permanent and not was_cancelled
            kind = AirflowFailException if is_final else AirflowException
            raise kind(f"{error.code}: {error}") from error
        finally:
            self._is_executing = False

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        """The task's work; the return value goes to XCom. Raises SkyplaneError."""
        raise NotImplementedError

    def report_failure(self, context: Context, error: SkyplaneError) -> TransferResult | None:
        """Log the failed objects of a transfer, and push its result to XCom for callbacks."""
        result = failed_result(error)
        if result is None:
            return None
        log_failures(self.log, result)
        if result.resume_handle:
            # The handle has 1,400 characters. A retry does not need it.
            self.log.info(
                "the next try of this task resumes transfer %s; if no try is left, clear the "
                "task within 24 h",
                result.transfer_key,
            )
        self.push(context, FAILED_TRANSFER, result.to_dict())
        return result

    def report_timeout(self, context: Context) -> None:
        """Report what the task has done, before Airflow ends it; best effort."""

    def push(self, context: Context, name: str, value: Any) -> None:
        """Push a value to XCom beside the one that `execute` returns."""
        context["ti"].xcom_push(key=name, value=value)
        if self.pushed is not None:
            self.pushed[name] = value

    def on_kill(self) -> None:
        """Cancel remote work, then leave `execute` by an exception, so that the client tears down.

        Airflow 3 calls this from its SIGTERM handler and continues `execute`; Airflow 2 raises.
        """
        if not self._is_executing:
            return
        self._is_executing = False
        self.cancel_work()
        raise AirflowException("the task was killed")

    def cancel_work(self) -> None:
        """Cancel remote work that would continue after `execute`; best effort."""
