"""Machines that delete themselves at their end, where the option `self_delete_role` allows it.

Azure bills a machine that has powered itself off. So the boot script asks the metadata service for
a token of the machine's identity, and Resource Manager to delete the machine, before it powers off.
The identity gets the role on that very machine, and on nothing else.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, cast

from skyplane_orchestration.provision.azure.options import Resource
from skyplane_orchestration.provision.fleet.user_data import with_last_act

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

_PUBLIC_CLOUD: Final = "https://management.azure.com"
_COMPUTE_VERSION: Final = "2024-07-01"
_AUTHORIZATION_VERSION: Final = "2022-04-01"
#: Of names of role assignments: the same machine and identity give the same name.
_NAMES: Final = uuid.UUID("6f0f6a8e-9d0a-4a53-8f5c-0b8f2f1f7c11")

#: `printf` is part of the shell, so the token is in no argument of a process. A deletion that Azure
#: accepts ends the machine by itself; its power goes off in any case.
_DELETE: Final = r"""
    identity='http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01'
    attempt=1
    # A right takes minutes until it holds everywhere, and a shutdown waits for a minute only.
    while [ "$attempt" -le 4 ]; do
        token=$(curl --fail --silent --noproxy '*' --max-time 10 --header Metadata:true \
            "$identity&resource=@RESOURCE@") || token=
        token=${token#*'"access_token":"'}
        token=${token%%'"'*}
        if [ -n "$token" ] && printf 'header = "Authorization: Bearer %s"\n' "$token" |
            curl --fail --silent --max-time 30 --config - --request DELETE \
                '@MACHINE@?api-version=@VERSION@'
        then
            say 'Azure deletes this machine'
            return 0
        fi
        sleep 5
        attempt=$((attempt + 1))
    done
    say 'Azure did not delete this machine: it is billed until a sweep'
"""


def deleting_itself(user_data: str, endpoint_url: str, machine_id: str) -> str:
    """The boot script, which ends with the deletion of this machine.

    Args:
        endpoint_url: of Resource Manager; empty for Azure's public cloud.
        machine_id: its resource id.
    """
    endpoint = (endpoint_url or _PUBLIC_CLOUD).rstrip("/")
    act = (
        _DELETE.replace("@RESOURCE@", f"{endpoint}/")
        .replace("@MACHINE@", f"{endpoint}{machine_id}")
        .replace("@VERSION@", _COMPUTE_VERSION)
    )
    return with_last_act(user_data, act)


def allow_to_delete_itself(
    api: AzureApi, what: str, region: str, role: str, machine: Resource
) -> None:
    """Give a machine's identity the role on the machine; again is no error.

    Args:
        what: the instance, for messages.
        role: resource id of the role definition.
        machine: as Azure describes it.

    Raises as `AzureApi.begin`.
    """
    principal = _principal_of(machine)
    name = uuid.uuid5(_NAMES, f"{machine['id'].lower()} {principal}")
    scope = f"{machine['id']}/providers/Microsoft.Authorization/roleAssignments/{name}"
    properties = {
        "roleDefinitionId": role,
        "principalId": principal,
        # Azure then does not look for an identity that may be too new to be found.
        "principalType": "ServicePrincipal",
    }
    body = cast("Any", {"properties": properties})
    resources = api.resources.resources
    # Without a look at its end: it has ended with the answer, and a look needs another permission.
    api.begin(
        f"allowing {what} to delete itself",
        region,
        lambda: resources.begin_create_or_update_by_id(
            scope, parameters=body, api_version=_AUTHORIZATION_VERSION, polling=False
        ),
    )


def _principal_of(machine: Resource) -> str:
    """Of its only identity: a user-assigned one, or its own."""
    identity = machine["identity"]
    assigned = identity.get("userAssignedIdentities") or {}
    found = next(iter(assigned.values()), identity)
    return str(found["principalId"])
