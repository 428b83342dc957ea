"""Which executor runs a task, and whether it may run the next task on another machine."""

from __future__ import annotations

from typing import Final

from airflow.providers.common.compat.sdk import conf

#: They run all tasks on the scheduler's machine.
_ON_ONE_MACHINE: Final = frozenset({"LocalExecutor", "SequentialExecutor", "DebugExecutor"})


def remote_executor(wanted: str | None) -> str:
    """The class name of a task's executor; empty if it runs all tasks on one machine.

    Args:
        wanted: `executor` of the task: a name, a path or an alias; None: the default executor.
    """
    # Teams of Airflow 3 follow after semicolons.
    configured = conf.get("core", "executor", fallback="LocalExecutor").partition(";")[0]
    entries = [entry.strip() for entry in configured.split(",")]
    chosen = entries[0]
    if wanted is not None:
        chosen = next((entry for entry in entries if wanted in _names_of(entry)), wanted)
    name = _class_of(chosen)
    return "" if name in _ON_ONE_MACHINE else name


def _class_of(entry: str) -> str:
    """The class of `alias:path.to.Class`, of a path or of a name."""
    return entry.rpartition(":")[2].rpartition(".")[2]


def _names_of(entry: str) -> tuple[str, str, str]:
    alias, _, path = entry.rpartition(":")
    return alias, path, _class_of(entry)
