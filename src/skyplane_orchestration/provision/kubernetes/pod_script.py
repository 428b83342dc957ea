"""What a Pod runs whose image has a Python and no gateway: it gets the software as a machine does.

A part of it that hangs ends after a quarter of an hour, and the Pod then too.
"""

from __future__ import annotations

from typing import Final

from skyplane_orchestration.provision.fleet.user_data import BootSettings, software_script

_BEGIN: Final = r"""set -eu
say() { printf 'skyplane: %s\n' "$*"; }
retry() { timeout 900 "$@" || { sleep 5; timeout 900 "$@"; }; }
address=0.0.0.0
"""
_END: Final = r"""
exec env TMPDIR=/tmp PYTHONUNBUFFERED=1 "$python" -m skyplane_gateway enrol --address "$address" \
    --document "${0%/*}/document"
"""


def pod_script(settings: BootSettings) -> str:
    """It finds the enrolment document in its own folder."""
    return _BEGIN + software_script(settings) + _END
