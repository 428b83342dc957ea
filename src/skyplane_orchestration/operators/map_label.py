"""The label of a mapped task in the UI: `SOURCE to DESTINATION`, short."""

from __future__ import annotations

from typing import Final

#: The `map_index_template` of operators with two ends, where the user gives none.
MAP_INDEX_TEMPLATE: Final = "{{ task.map_label }}"

#: Characters of a URL. Airflow's table keeps 250 of a label.
_MOST: Final = 40


def label_of(source_url: str, destination_url: str) -> str:
    """Both ends, with the middle of long URLs left out: the last folder tells tasks apart."""
    return f"{_short(source_url)} to {_short(destination_url)}"


def _short(url: str) -> str:
    if len(url) <= _MOST:
        return url
    path = url.rpartition("://")[2]
    parts = path.rstrip("/").split("/")
    short = f"{parts[0]}/…/{parts[-1]}" if len(parts) > 2 else path
    return short if len(short) <= _MOST else f"…{short[1 - _MOST :]}"
