"""Every kind of store to every other, direct and through a relay, by real gateways.

The gateways run inside the test's process (`SmallJobsProvisioner`): the same code, over TCP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, pairwise, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.faults.http_proxy import running

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores.base import read_object
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.source_contents import NOT_LISTED
from skyplane_orchestration.planner.pricing.plan_cost import REQUESTS_PER_PRICE, request_usd

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = pytest.mark.e2e

MIB: Final = 1 << 20
#: Requests of a transfer for its journal, and those that look for other journals.
A_FEW: Final = 30
KINDS: Final = ("s3", "gcs", "azure", "file")
ATTRIBUTES: Final = ObjectAttributes(
    content_type="text/csv", cache_control="max-age=60", metadata=(("colour", "blue"),)
)
OBJECTS: Final = {
    "large.bin": os.urandom(6 * MIB + 7),
    "part.bin": os.urandom(5 * MIB),
    "empty": b"",
    "odd/two words+%25ü": b"odd",
    **{f"small/{number}": os.urandom(1000 + number) for number in range(20)},
    "_SUCCESS": b"ok",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("any"), "any") as made:
            for place in made.values():
                _fill(place)
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def _fill(place: Place) -> None:
    store = place.store()
    for key, body in OBJECTS.items():
        full = place.key("from/" + key)
        store.put(full, body, attributes=ATTRIBUTES, crc32c=crc32c(body))
    store.close()


_NUMBERS = count(1)


#: Each kind is read and written once. A relay knows nothing of stores.
_NEXT: Final = tuple(pairwise((*KINDS, KINDS[0])))
_OTHERS: Final = [ends for ends in product(KINDS, KINDS) if ends not in _NEXT]


@pytest.mark.parametrize(
    ("source", "destination", "relays"),
    [
        *((*ends, relays) for ends in _NEXT for relays in (0, 1)),
        *(pytest.param(*ends, 0, marks=pytest.mark.long) for ends in _OTHERS),
    ],
)
def test_any_store_to_any_other(
    kit: ClientKit,
    places: dict[str, Place],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    destination: str,
    relays: int,
) -> None:
    for place in places.values():
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
    here, there = places[source], places[destination]
    target = f"to-{next(_NUMBERS)}/"
    job = TransferJob(
        here.location("from/", kit.SOURCE),
        there.location(target, kit.SINK),
        limits=Limits(chunk_mib=5),
        encrypt="always" if relays else "auto",
    )
    client = kit.client(provisioner=kit.inside())
    plan = kit.relayed() if relays else kit.plan((kit.SOURCE, kit.SINK))
    result = client.run(job, plan=plan)
    assert (result.copied, result.failed) == (len(OBJECTS), 0)
    assert result.encrypted == bool(relays)
    store = there.store()
    prefix = there.key(target)
    found = {info.key: info for info in store.list(prefix)}
    assert set(found) == {prefix + key for key in OBJECTS}
    keeps_metadata = "file" not in (source, destination)
    for key, body in OBJECTS.items():
        info, copied = read_object(store, prefix + key, max_bytes=len(body))
        assert copied == body, key
        kept = marked(info.attributes or ObjectAttributes(), None)
        assert not keeps_metadata or kept == ATTRIBUTES, key
    assert list(store.list_uploads(prefix)) == []
    store.close()


class RequestsCount:
    """A grid whose price of a request is 1, so that the price of a job is a number of requests."""

    source_storage_class: str | None = None
    key_requests = "none"
    price_document: Mapping[str, Any] = MappingProxyType({})
    contents = NOT_LISTED

    def request_prices(self, cloud: str) -> dict[str, float]:
        return dict.fromkeys(("read", "write", "list"), float(REQUESTS_PER_PRICE))


@pytest.mark.parametrize(
    "objects", [200, pytest.param(5000, marks=pytest.mark.soak)], ids="{}-objects".format
)
@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_small_objects_take_as_many_requests_as_estimated(
    kit: ClientKit,
    places: dict[str, Place],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    objects: int,
) -> None:
    """One read and one write each; listings and the journal take few more."""
    place = places[kind]
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    prefix, target = f"small-{objects}/", f"to-{next(_NUMBERS)}/"
    store = place.store()
    with ThreadPoolExecutor(8) as pool:
        keys = [f"{prefix}{number:05}" for number in range(objects)]
        list(pool.map(lambda key: store.put(key, key.encode()), keys))
    store.close()
    client = kit.client(provisioner=kit.inside())
    trusted = {} if kind == "gcs" else {"checksum": "trusted"}
    with running(place.endpoint) as near, running(place.endpoint) as far:
        job = TransferJob(
            place.location(prefix, kit.SOURCE, near.url),
            replace(place.location(target, kit.SINK, far.url), options=trusted),
        )
        result = client.run(job, plan=kit.plan((kit.SOURCE, kit.SINK)))
        reads, writes = near.log.exchanges, far.log.exchanges
    assert (result.copied, result.failed) == (objects, 0)
    assert sum(each.status == 206 for each in reads) == objects
    assert sum(f"/{target}0" in f"/{each.written_key}" for each in writes) == objects
    grid: Any = RequestsCount()
    estimated = request_usd(grid, kit.SOURCE, [kit.SINK], objects, None, None)
    assert len(reads) + len(writes) <= 1.01 * estimated + A_FEW


def test_the_matrix_names_every_kind_that_a_transfer_can_reach() -> None:
    from skyplane_gateway.stores import registry

    assert set(KINDS) == set(registry._MODULES) - {"memory"}
