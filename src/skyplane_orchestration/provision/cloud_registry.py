"""The clouds that the provisioner `cloud` knows, and its settings: a file, or an object.

image: registry.example/skyplane-gateway@sha256:...
control_cidrs: [203.0.113.7/32]
aws:
  instance_profile: skyplane-gateway
gcp:
  project: replication
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.schema import check, decode, parsed
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra
from skyplane_orchestration.formatting import unknown_fields
from skyplane_orchestration.model.fleet import KUBERNETES
from skyplane_orchestration.provision.clocks import corrected
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.forwarding import worker_dial
from skyplane_orchestration.provision.fleet.machines import Instance, Machines
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import (
    CloudOptions,
    InstanceOptions,
    options_from,
)
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.fleet.registries import login_of
from skyplane_orchestration.provision.fleet.software import Software
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data
from skyplane_orchestration.security.store_credentials import CredentialSources

#: Cloud -> its class and that of its options, in `provision/NAME`.
_CLASSES: Final = {
    "aws": ("AwsCloud", "AwsOptions"),
    "azure": ("AzureCloud", "AzureOptions"),
    "gcp": ("GcpCloud", "GcpOptions"),
    KUBERNETES: ("KubernetesCloud", "KubernetesOptions"),
}


def _opened(
    name: str, settings: Mapping[str, Any], sources: CredentialSources, clock: Clock
) -> Machines:
    """A cloud by its settings. Raises ConfigurationInvalid, MissingExtra."""
    try:
        package = import_module(f"skyplane_orchestration.provision.{name}")
    except ModuleNotFoundError as error:
        raise MissingExtra.of(f"the provisioner {name!r}", name) from error
    cloud, options = (getattr(package, one) for one in _CLASSES[name])
    made: Machines = cloud(options_from(options, name, settings), sources, clock)
    return made


#: What a cloud cannot do without, and the variable that has it where no file names it.
_AMBIENT: Final = {
    "azure": ("subscription_id", "AZURE_SUBSCRIPTION_ID"),
    "gcp": ("project", "GOOGLE_CLOUD_PROJECT"),
}

#: Of `control_cidrs`, in place of ranges.
_AUTO: Final = "auto"

_BOOT: Final = frozenset(field.name for field in fields(BootSettings))
_OPTIONS: Final = frozenset(field.name for field in fields(InstanceOptions))
_OF_ONE_CLOUD: Final = frozenset(field.name for field in fields(CloudOptions))


@dataclass(frozen=True, slots=True)
class CloudsSettings:
    """What instances run, how fleets come up, and the settings of each cloud.

    Args:
        clouds: `aws`, ... -> its settings, which are checked when the cloud is opened.
        source: where they are from, for messages.
    """

    boot: BootSettings
    options: InstanceOptions
    clouds: Mapping[str, Mapping[str, Any]]
    source: str

    def __post_init__(self) -> None:
        check(self)

    def only(self, name: str) -> CloudsSettings:
        """The settings of one cloud alone. Raises ConfigurationInvalid if there are none."""
        if name not in self.clouds:
            raise ConfigurationInvalid(
                f"{self.source} has no section {name}; it has {', '.join(self.clouds)}"
            )
        return replace(self, clouds={name: self.clouds[name]})

    def open(self, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK) -> InstanceProvisioner:
        """The provisioner of all these clouds; nothing is asked of them yet.

        Raises:
            ConfigurationInvalid: a cloud's settings cannot be used.
            MissingExtra: a cloud's SDK is not installed.
        """
        clock = corrected(clock)
        opened = [_opened(name, settings, sources, clock) for name, settings in self.clouds.items()]
        clouds = Clouds(opened, clock, worker_dial(self.options.control_port))

        registry = login_of(self.boot.image, self.clouds)
        has_gateway = not self.clouds.get(KUBERNETES, {}).get("python_image")

        def is_pod(instance: str) -> bool:
            return clouds.of(instance.rpartition("/")[0]).name == KUBERNETES

        def script_of(document: EnrolmentDocument, hard_end_s: float, processes: int) -> str:
            if not is_pod(document.instance):
                port = self.options.control_port
                return user_data(self.boot, document, hard_end_s, processes, port, registry)
            if has_gateway:
                return document.to_json()
            # It loads the client library.
            from skyplane_orchestration.provision.kubernetes.pod_script import pod_script

            return f"{document.to_json()}\n{pod_script(self.boot)}"

        def software_of(one: Instance) -> Software | None:
            return None if has_gateway and is_pod(one.instance) else self.boot.pushed()

        boot = Boot(script_of, clouds.stream_of, clock, software=software_of)
        context = FleetContext(clouds, boot, self.options, clock, clouds.session)
        return InstanceProvisioner(context, self.boot.require_bundle)


def open_one_cloud(
    name: str,
    path: Path | None,
    regions: Sequence[str],
    sources: CredentialSources,
) -> Machines:
    """One cloud, to ask something of it.

    Args:
        name: `aws`, ...
        path: clouds file with its settings; without one, those of this process: its credentials,
            and the variables AZURE_SUBSCRIPTION_ID and GOOGLE_CLOUD_PROJECT.
        regions: tags that take the place of the setting `regions`; empty for that setting.

    Raises:
        ConfigurationInvalid: the file or a region cannot be used, a setting is missing, or
            instances could not get their software: the bundle is none, or they cannot log in.
        MissingExtra: the cloud's SDK is not installed.
    """
    if regions and name == KUBERNETES:
        raise ConfigurationInvalid("the section kubernetes of the clouds file names its regions")
    foreign = [region for region in regions if not region.startswith(f"{name}:")]
    if foreign:
        raise ConfigurationInvalid(f"region {foreign[0]} is not a region of {name}")
    if path is None:
        if name == KUBERNETES:
            raise ConfigurationInvalid("kubernetes needs --clouds FILE, which names its regions")
        settings = _ambient_settings(name)
    else:
        of_file = read_clouds(path).only(name)
        login_of(of_file.boot.image, of_file.clouds)
        of_file.boot.require_bundle()
        settings = of_file.clouds[name]
    if regions:
        settings = {**settings, "regions": list(regions)}
    return _opened(name, settings, sources, SYSTEM_CLOCK)


def _ambient_settings(name: str) -> Mapping[str, Any]:
    if name not in _AMBIENT:
        return {}
    setting, variable = _AMBIENT[name]
    if value := os.environ.get(variable):
        return {setting: value}
    raise ConfigurationInvalid(
        f"{name} needs a {setting}: set {variable}, or name it in the section {name} of a clouds"
        " file"
    )


def ambient_clouds(name: str) -> CloudsSettings:
    """One cloud, with the credentials and variables of this process. Raises ConfigurationInvalid.

    Args:
        name: `aws`, ...
    """
    return parse_clouds({name: _ambient_settings(name)}, f"the provisioner {name!r} without a file")


def read_clouds(path: Path) -> CloudsSettings:
    """Settings from a YAML or JSON file.

    Raises ConfigurationInvalid: the file cannot be read or used; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = parsed(text, f"the clouds file {path}", yaml.safe_load, most_bytes=1 << 20)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationInvalid(f"the clouds file {path} cannot be read: {error}") from error
    return parse_clouds(document, f"the clouds file {path}")


def parse_clouds(document: object, source: str = "the setting clouds") -> CloudsSettings:
    """Settings from an object of the file's form.

    Args:
        source: where the object is from, for messages.

    Raises ConfigurationInvalid.
    """
    try:
        return _settings(document, source)
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(f"{source} cannot be used: {error}") from error


def _settings(document: object, source: str) -> CloudsSettings:
    if not isinstance(document, Mapping):
        raise ConfigurationInvalid(
            "it must be an object with a section for each cloud, such as 'aws: {}'"
        )
    _require_known(document)
    clouds = {
        name: {} if section is None else section
        for name, section in document.items()
        if name in _CLASSES
    }
    if not clouds:
        raise ConfigurationInvalid(
            f"it has no cloud; add a section for one, which may be empty: {', '.join(_CLASSES)}"
        )
    for name, section in clouds.items():
        if not isinstance(section, Mapping):
            raise ConfigurationInvalid(
                f"{name} must be an object with settings, which may be empty, not a"
                f" {type(section).__name__}"
            )
        # Clusters may have an image of their own.
        whole = {*_BOOT, *_OPTIONS} - ({"image"} if name == KUBERNETES else set())
        if misplaced := sorted(whole & set(section)):
            raise ConfigurationInvalid(
                f"{misplaced[0]} is a setting of all clouds: write it beside the section {name},"
                " not in it"
            )
    _require_apart(clouds)
    if document.get("image") and KUBERNETES in clouds:
        if clouds[KUBERNETES].get("python_image"):
            raise ConfigurationInvalid(
                "python_image of kubernetes cannot be beside image: its Pods would get no software;"
                " leave out one of them"
            )
        # Pods need a name: no cluster runs an archive.
        if not document.get("image_sha256"):
            clouds[KUBERNETES] = {"image": document["image"], **clouds[KUBERNETES]}
    options = {name: value for name, value in document.items() if name in _OPTIONS}
    if options.get("control_cidrs") == _AUTO:
        del options["control_cidrs"]
    if isinstance(given := options.get("control_cidrs"), str):
        raise ConfigurationInvalid(
            "control_cidrs must be auto, or a list of ranges such as [203.0.113.7/32], not"
            f" {given!r}"
        )
    private = [name for name, section in clouds.items() if section.get("public_address") is False]
    if private and "control_cidrs" not in options:
        raise ConfigurationInvalid(
            f"{private[0]} has public_address: false, so control_cidrs must name the private ranges"
            " of your workers, as 10.0.0.0/16"
        )
    if not options.get("control_cidrs", _AUTO):
        raise ConfigurationInvalid(
            "control_cidrs is empty: leave it out, or name the addresses from which your workers"
            " reach the gateways, as 203.0.113.7/32"
        )
    boot = {name: value for name, value in document.items() if name in _BOOT}
    return CloudsSettings(
        decode(BootSettings, boot, "its software"),
        decode(InstanceOptions, options, "its options"),
        clouds,
        source,
    )


def _require_known(document: Mapping[Any, Any]) -> None:
    """Raise ConfigurationInvalid for a field that a clouds file does not have, or has elsewhere."""
    known = {*_BOOT, *_OPTIONS, *_CLASSES}
    unknown = sorted(str(name) for name in set(document) - known)
    if "gateway_credentials" in unknown:
        raise ConfigurationInvalid(
            "gateway_credentials is no setting of clouds: it is a field of the connection and of"
            " the resource, an argument of Client, and --gateway-credentials of commands"
        )
    if of_one := [name for name in unknown if name in _OF_ONE_CLOUD]:
        raise ConfigurationInvalid(
            f"{of_one[0]} is a setting of one cloud: write it into the section of the cloud, such"
            " as aws"
        )
    if unknown:
        raise ConfigurationInvalid(f"it has {unknown_fields(unknown, known)}")


def _require_apart(clouds: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ConfigurationInvalid for a region of a cluster that its cloud's section may have too.

    A teardown looks for what a region has in one place.
    """
    for region in clouds.get(KUBERNETES, {}).get("regions") or ():
        cloud = str(region).partition(":")[0]
        named = clouds.get(cloud, {"regions": ("none",)}).get("regions")
        if not named or region in named:
            raise ConfigurationInvalid(
                f"{region} is a region of kubernetes; set regions of {cloud} to all that it has"
                " besides"
            )
