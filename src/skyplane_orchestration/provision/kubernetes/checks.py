"""Whether clusters can have fleets: one finding for each context, and for each thing that lacks."""

from __future__ import annotations

from typing import Final

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.provision.fleet.machines import FleetTags, LaunchRequest
from skyplane_orchestration.provision.kubernetes import manifests
from skyplane_orchestration.provision.kubernetes.client import GROUPS, ClusterApi
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion, KubernetesOptions
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding

#: What a Role must allow: resource -> verbs.
PERMISSIONS: Final = {
    "jobs": ("create", "list", "patch", "delete"),
    "pods": ("list",),
    "pods/log": ("get",),
    # A websocket begins with GET; releases from 1.35 ask for the other one as well.
    "pods/portforward": ("get", "create"),
    "secrets": ("create", "delete"),
    "networkpolicies": ("create", "get", "list", "patch", "delete"),
    "resourcequotas": ("list",),
    "events": ("list",),
}
#: The same, where a region has `load_balancer`.
OF_BALANCERS: Final = {"services": ("create", "list"), "jobs/finalizers": ("update",)}


def findings(api: ClusterApi, options: KubernetesOptions, deployment: str) -> tuple[Finding, ...]:
    """The first one is about the credentials of the first context; without them it is the only."""
    credentials = _credentials(api, next(iter(options.regions.values())))
    if not credentials.is_ok:
        return (credentials,)
    found = in_parallel(
        options.regions, lambda region: _of_region(api, options, region, deployment)
    )
    rest = dict.fromkeys(one for group in found for one in group)
    return (credentials, *rest)


def _credentials(api: ClusterApi, place: ClusterRegion) -> Finding:
    name = "kubernetes credentials"
    try:
        _may(api, place, "list", "jobs")
    except SkyplaneError as error:
        return Finding(name, False, str(error))
    return Finding(name, True, f"context {place.context or 'that is current'} answers")


def _of_region(
    api: ClusterApi, options: KubernetesOptions, region: str, deployment: str
) -> list[Finding]:
    place = options.of(region)
    where = f"namespace {place.namespace} of context {place.context or 'that is current'}"
    balancers = OF_BALANCERS if place.load_balancer else {}
    try:
        lacking = [
            f"{verb} {resource}"
            for resource, verbs in (PERMISSIONS | balancers).items()
            for verb in verbs
            if not _may(api, place, verb, resource)
        ]
        if lacking:
            text = f"the Role lacks, in {where}: {', '.join(lacking)}"
            return [Finding("kubernetes permissions", False, text)]
        # The API server checks a Job as for a launch, and makes none.
        tags = FleetTags("0", deployment, 0, 0, 0)
        request = LaunchRequest(tags, f"{region}/0", region, "", "0", 0, "", is_end=True)
        body = manifests.job(request, options, 0, 1)
        what, query = f"trying a launch in {region}", {"dryRun": "All"}
        api.call(what, place, "create", "jobs", body=body, query=query)
    except SkyplaneError as error:
        return [Finding(f"kubernetes {region}", False, str(error))]
    return [Finding("kubernetes permissions", True, f"Jobs can be found and launched in {where}")]


def _may(api: ClusterApi, place: ClusterRegion, verb: str, resource: str) -> bool:
    kind, _, sub = resource.partition("/")
    attributes = {
        "namespace": place.namespace,
        "verb": verb,
        "group": GROUPS.get(kind, ""),
        "resource": kind,
        "subresource": sub,
    }
    answer = api.call(
        "checking the permissions",
        place,
        "create",
        "selfsubjectaccessreviews",
        body={"spec": {"resourceAttributes": attributes}},
    )
    return bool(answer["status"]["allowed"])
