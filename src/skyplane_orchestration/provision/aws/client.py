"""Clients of AWS's APIs: sessions, timeouts, retries, and the translation of refusals.

The only module of this package that imports botocore.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudAccessDenied, ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.provision.aws.error_mapping import response_of, translate
from skyplane_orchestration.provision.aws.options import AwsOptions, region_name, region_tag
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse
from skyplane_orchestration.provision.fleet.retries import (
    VISIBLE_WAITS_S,
    ask,
    until_visible,
    while_refused,
)
from skyplane_orchestration.security.store_credentials import CredentialSources

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

#: botocore's descriptions are read by one thread at a time.
_LOADING: Final = threading.Lock()

T = TypeVar("T")

#: Credentials are read again so long before they expire.
_RENEW_BEFORE_S: Final = 300

#: Actions of IAM have the name of the operation and of its service, which is EC2 for all others.
_SERVICES: Final = {
    "GetCallerIdentity": "sts",
    "GetParameter": "ssm",
    "GetServiceQuota": "servicequotas",
}

#: Kind -> operation of EC2, the field of its answer, and the most of a page.
_LISTS: Final = {
    "instances": ("describe_instances", "Reservations", 1000),
    "disks": ("describe_volumes", "Volumes", 500),
    "network interfaces": ("describe_network_interfaces", "NetworkInterfaces", 500),
    "security groups": ("describe_security_groups", "SecurityGroups", 1000),
}


class AwsApi:
    """Calls of AWS's APIs; threads may share it. Its arguments are those of `AwsCloud`."""

    def __init__(
        self, options: AwsOptions, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.options = options
        self._sources = sources
        self.clock = clock
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None
        self._expires_unix_s = float("inf")
        self._clients: dict[tuple[str, str], Any] = {}

    @property
    def home_region(self) -> str:
        """The tag of the region for questions that belong to no region.

        A name that botocore does not know may be wrong, or new; another one is better.
        """
        if named := self.options.regions:
            return next((one for one in named if region_name(one) in _known_regions()), named[0])
        with self._lock, _LOADING:
            configured = self._current_session().get_config_variable("region")
        # Where AWS answers questions that belong to no region, if no setting names one.
        return region_tag(configured or "us-east-1")

    def call(
        self,
        what: str,
        region: str,
        operation: str,
        *,
        service: str = "ec2",
        expected: Collection[str] = (),
        missing: Collection[str] = (),
        **arguments: Any,
    ) -> Any:
        """The answer to an idempotent request, which is repeated after throttling and faults.

        Args:
            what: begins the message of an error.
            region: tag of the region that is asked.
            operation: as botocore names it, `run_instances`.
            service: as botocore names it.
            expected: codes of refusals that the caller handles.
            missing: those for what AWS may not know for some seconds, since it was just made. The
                request is repeated for half a minute first.
            arguments: of the operation.

        Raises:
            CloudRefusal: one with an expected code, or a missing one.
            CloudAccessDenied, CloudUnavailable, QuotaExceeded, CapacityUnavailable,
                ConfigurationInvalid: see `translate`.
        """

        def meaning(error: BaseException) -> ErrorResponse | SkyplaneError | None:
            if isinstance(error, ParamValidationError):
                return ConfigurationInvalid(f"{what}: AWS does not accept this request: {error}")
            return _answer(error, region) if isinstance(error, ClientError) else None

        def request() -> Any:
            return ask(
                partial(getattr(self._client(service, region), operation), **arguments),
                self.clock,
                "AWS",
                what,
                # The last is for answers of something else, such as a proxy.
                errors=(ClientError, BotoCoreError, ResponseParserError),
                meaning=meaning,
                translate=translate,
                expected={*expected, *missing},
            )

        return while_refused(request, self.clock, missing, VISIBLE_WAITS_S)

    def until_visible(self, look: Callable[[], T | None]) -> T | None:
        return until_visible(self.clock, look)

    def listed(self, kind: str, region: str, filters: Sequence[FilterTypeDef]) -> Iterator[Any]:
        """The things of a kind (see `_LISTS`) in a region. One call per page."""
        operation, field, most = _LISTS[kind]
        token: dict[str, str] = {}
        while True:
            what = f"looking for {kind} in {region}"
            page = self.call(what, region, operation, Filters=filters, MaxResults=most, **token)
            yield from page[field]
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _client(self, service: str, region: str) -> Any:
        name = region_name(region)
        with self._lock, _LOADING:
            session = self._current_session()
            client = self._clients.get((service, name))
            if client is None:
                client = self._clients[service, name] = session.create_client(
                    service,
                    region_name=name,
                    endpoint_url=self.options.endpoint_url or None,
                    config=Config(
                        connect_timeout=10,
                        read_timeout=60,
                        # More than a provisioner's threads, so that none waits for a connection.
                        max_pool_connections=16,
                        # `call` retries, with the clock of the caller.
                        retries={"total_max_attempts": 1, "mode": "standard"},
                    ),
                )
                client.meta.events.register("response-received", self._hear)
        return client

    def _hear(self, response_dict: dict[str, Any] | None, **_: Any) -> None:
        self.clock.hear((response_dict or {}).get("headers", {}).get("date"))

    def _current_session(self) -> botocore.session.Session:
        """A session whose credentials are valid for some minutes; the lock is held."""
        if self._session is None or self.clock.wall() > self._expires_unix_s - _RENEW_BEFORE_S:
            self._session = self._new_session()
            self._clients = {}
        return self._session

    def _new_session(self) -> botocore.session.Session:
        found = self._sources.of_cloud("aws", self.options.credential_ref)
        if found is None:
            raise CloudAccessDenied(
                "there are no credentials for aws; set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, or name a profile or a connection in credential_ref",
                of_credentials=True,
            )
        self._expires_unix_s = float(found.get("expires_at", "inf"))
        session = botocore.session.Session()
        data_path = session.get_config_variable("data_path")
        session.register_component("data_loader", _descriptions(data_path))
        session.set_credentials(
            found["access_key_id"], found["secret_access_key"], found.get("session_token") or None
        )
        return session


@cache
def _known_regions() -> frozenset[str]:
    """AWS's names of the regions that this release of botocore knows."""
    partitions = _descriptions(None).load_data("endpoints")["partitions"]
    return frozenset(name for one in partitions for name in one["regions"])


@cache
def _descriptions(data_path: str | None) -> Loader:
    """botocore's service descriptions; to read that of EC2 takes longer than most calls."""
    return create_loader(data_path)


def _answer(error: ClientError, region: str) -> ErrorResponse:
    fields = error.response.get("Error", {})
    operation = error.operation_name
    return response_of(
        f"{_SERVICES.get(operation, 'ec2')}:{operation}",
        str(fields.get("Code", "")),
        int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
        str(fields.get("Message", "")),
        region,
    )
