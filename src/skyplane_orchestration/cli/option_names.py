"""The names of the Python API in messages, as the options that the user has typed."""

from __future__ import annotations

import re
from typing import Final

#: Fields whose option is not simply their name with hyphens.
_OTHERWISE: Final = {
    "max_relays": "--relays",
    "publish_last": "--last",
    "policy max_job_usd": "--max-job-usd",
}
_ALIKE: Final = (
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
_OPTIONS: Final = {**_OTHERWISE, **{name: "--" + name.replace("_", "-") for name in _ALIKE}}
#: Not as a part of a path or of a longer name.
_FIELD: Final = re.compile(
    rf"(?<![\w/.'\"-])({'|'.join(sorted(_OPTIONS, key=len, reverse=True))})(?![\w/.'\"=-])"
)


def with_option_names(message: str) -> str:
    """A message of the library, for somebody who uses the command."""
    return _FIELD.sub(lambda found: _OPTIONS[found[1]], message)
