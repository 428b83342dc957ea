"""What a Pod runs whose image has a Python and no gateway: it gets the software as a machine does.

It has a quarter of an hour to get and install the software; then the Pod ends.
"""

from __future__ import annotations

from typing import Final

from skyplane_orchestration.provision.fleet.user_data import BootSettings, software_script

_BEGIN: Final = r"""set -eu
say() { printf 'skyplane: %s\n' "$*"; }
end_s=$(($(date +%s) + 900))
in_time() { left_s=$((end_s - $(date +%s))); [ "$left_s" -gt 0 ] && timeout "$left_s" "$@"; }
retry() { in_time "$@" || { sleep 5; in_time "$@"; }; }
address=0.0.0.0
"""
_END: Final = r"""
exec env TMPDIR=/tmp PYTHONUNBUFFERED=1 "$python" -m skyplane_gateway enrol --address "$address" \
    --document "${0%/*}/document"
"""


def pod_script(settings: BootSettings) -> str:
    """It finds the enrolment document in its own folder."""
    return _BEGIN + software_script(settings) + _END
