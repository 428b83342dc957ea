"""Replaces names of the Python API in messages by the command's options."""

from __future__ import annotations

import re
from typing import Final

#: Fields whose option has another name.
_RENAMED: Final = {
    "max_relays": "--relays",
    "publish_last": "--last",
    "policy max_job_usd": "--max-job-usd",
}
_SAME_NAME: Final = (
    "allow_empty",
    "allow_failed",
    "chunk_mib",
    "deadline_s",
    "instance_limit",
    "max_cost_usd",
    "max_job_usd",
    "max_usd_per_gb",
    "min_throughput_gbps",
    "run_root",
    "safety_margin",
    "source_read_gbps",
    "destination_write_gbps",
    "volume_gb",
)
_OPTIONS: Final = {**_RENAMED, **{name: "--" + name.replace("_", "-") for name in _SAME_NAME}}
#: A field's name, but not as a part of a path or of a longer name.
_FIELD: Final = re.compile(
    rf"(?<![\w/.'\"-])({'|'.join(sorted(_OPTIONS, key=len, reverse=True))})(?![\w/.'\"=-])"
)


def with_option_names(message: str) -> str:
    """A message of the library with the names of options."""
    return _FIELD.sub(lambda found: _OPTIONS[found[1]], message)
