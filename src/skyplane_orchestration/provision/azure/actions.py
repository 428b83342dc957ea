"""What Azure calls the permission for a request: `Microsoft.Compute/virtualMachines/write`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_VERBS: Final = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_RESOURCES: Final = "Microsoft.Resources"


def action_of(method: str, url: str) -> str:
    """The action of a request to the Resource Manager."""
    parts = urlsplit(url).path.strip("/").split("/")
    lower = [part.lower() for part in parts]
    verb = _VERBS.get(method, "")
    if not verb:
        verb = f"{parts.pop()}/action"
        lower.pop()
    if "providers" not in lower:
        # subscriptions/S/resourceGroups[/G[/resources]], subscriptions/S/operationresults/O
        return "/".join([_RESOURCES, "subscriptions", *parts[2::2], verb])
    last = len(lower) - 1 - lower[::-1].index("providers")
    after = parts[last + 1 :]
    if len(after) == 1:
        return f"{_RESOURCES}/subscriptions/providers/{verb}"
    kinds = [after[0], *after[1::2]]
    return "/".join([*kinds, verb])
