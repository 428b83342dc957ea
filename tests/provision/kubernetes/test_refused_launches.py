"""A launch that the API server refuses halfway leaves nothing that runs."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from kubernetes.client.exceptions import ApiException
from tests.manual_clock import ManualClock
from tests.provision.kubernetes.test_manifests import OPTIONS, REQUEST

from skyplane_orchestration.errors import CloudAccessDenied, QuotaExceeded, SkyplaneError
from skyplane_orchestration.provision.kubernetes import KubernetesCloud

_UID: Final = "u-1"


class RefusingServer:
    """Makes a Job, and forbids one resource that comes after it."""

    def __init__(self, forbidden: str, quotas: list[dict[str, Any]]) -> None:
        self._forbidden = forbidden
        self._found = {"resourcequotas": quotas}
        self.jobs: list[str] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        resource = path.rpartition("/")[2]
        if method == "POST" and resource == self._forbidden:
            error = ApiException(status=403, reason="Forbidden")
            error.body = json.dumps({"reason": "Forbidden", "message": "forbidden"})
            raise error
        if method == "DELETE":
            assert body["preconditions"] == {"uid": _UID}
            self.jobs.remove(resource)
        elif method == "POST" and resource == "jobs":
            self.jobs.append(body["metadata"]["name"])
            body = {**body, "metadata": {**body["metadata"], "uid": _UID}}
        return _Answer(body or {"items": self._found.get(resource, []), "metadata": {}})


class _Answer:
    def __init__(self, document: Any) -> None:
        self.data = json.dumps(document).encode()


def _full(counted: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "team"},
        "status": {"hard": {counted: "3"}, "used": {counted: "3"}},
    }


@pytest.mark.parametrize(
    ("forbidden", "quotas", "kind"),
    [
        ("secrets", [], CloudAccessDenied),
        ("services", [], CloudAccessDenied),
        ("secrets", [_full("pods")], CloudAccessDenied),
        ("secrets", [_full("count/secrets")], QuotaExceeded),
        ("services", [_full("services.loadbalancers")], QuotaExceeded),
    ],
)
def test_a_job_without_its_secret_or_service_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
    forbidden: str,
    quotas: list[dict[str, Any]],
    kind: type[SkyplaneError],
) -> None:
    cloud = KubernetesCloud(OPTIONS, None, ManualClock(1_700_000_000.0).clock)
    server = RefusingServer(forbidden, quotas)
    monkeypatch.setattr(cloud._api, "_dynamic", lambda context: server)
    with pytest.raises(kind):
        cloud.launch(REQUEST)
    assert server.jobs == []
