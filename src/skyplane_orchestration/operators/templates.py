"""The check that Airflow has rendered all templates of a task's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, holds_template


def refuse_unrendered(name: str, value: Any) -> None:
    """Check every text of an argument.

    Args:
        name: of the argument, for the message.

    Raises ConfigurationInvalid: a text still holds a template. It would be used as a URL or key.
    """
    if isinstance(value, TransferJob | Location):
        value = value.to_dict()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_unrendered(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple | set):
        for index, inner in enumerate(value):
            refuse_unrendered(f"{name}[{index}]", inner)
    elif isinstance(value, str) and holds_template(value):
        raise ConfigurationInvalid(
            f"{name} is {value!r}, and its template was not rendered; Airflow renders the"
            " arguments of a task, but not the return value of another task: render it there"
        )
