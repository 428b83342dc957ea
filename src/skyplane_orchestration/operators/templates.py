"""What Airflow should have rendered before a task runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, holds_template


def refuse_unrendered(name: str, value: Any) -> None:
    """Look at every text of an argument; `name` is how the user calls it.

    Raises:
        ConfigurationInvalid: a text still holds a template. As a URL or a key it would name
            a place that nobody means.
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
            f"{name} is {value!r}, and its template was not rendered; Airflow renders the "
            "arguments of a task, not what another task returns: render it there"
        )
