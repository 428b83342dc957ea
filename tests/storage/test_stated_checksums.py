"""`verify` by the checksums that stores state, and by reading where they prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5

import pytest
from azure.storage.blob import ContentSettings
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.faults.http_proxy import running
from tests.faults.http_rules import Rule

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.compare import VerifyReport, verify_job

BODIES = {"a": b"one", "b": b"two" * 1000}
SIZE = sum(map(len, BODIES.values()))


@pytest.fixture(scope="module")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("stated"), "stated") as made:
            for place in made.values():
                store = place.store()
                for key, body in BODIES.items():
                    store.put(place.key(f"at/{key}"), body)
                store.close()
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.fixture
def places(emulators: dict[str, Place], monkeypatch: pytest.MonkeyPatch) -> dict[str, Place]:
    for place in emulators.values():
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
    return emulators


def at(place: Place, prefix: str = "at/", endpoint: str = "", **options: str) -> Location:
    found = place.location(prefix, "", endpoint)
    return replace(found, options=options)


def verified(source: Location, destination: Location, *, download: bool = False) -> VerifyReport:
    return verify_job(TransferJob(source, destination), CredentialSources(), download=download)


@pytest.mark.parametrize(
    ("source", "destination", "by", "ends_read"),
    [
        ("gcs", "gcs", "CRC32C", 0),
        ("gcs", "azure", "MD5", 0),
        ("azure", "azure", "MD5", 0),
        # Their listing states none, and this server's own word does not count.
        ("s3", "gcs", "CRC32C", 1),
        ("s3", "azure", "SHA-256", 2),
        ("file", "gcs", "CRC32C", 1),
        ("file", "azure", "SHA-256", 2),
        ("file", "file", "SHA-256", 2),
    ],
)
def test_what_both_ends_state_is_compared_and_else_they_are_read(
    places: dict[str, Place], source: str, destination: str, by: str, ends_read: int
) -> None:
    report = verified(at(places[source]), at(places[destination]))
    assert (report.is_equal, report.compared) == (True, {by: 2})
    assert report.read_bytes == ends_read * SIZE
    assert report.to_dict()["compared"] == {by: 2}
    whole = verified(at(places[source]), at(places[destination]), download=True)
    assert (whole.compared, whole.read_bytes) == ({"SHA-256": 2}, 2 * SIZE)


def test_an_s3_store_that_is_trusted_states_what_it_has(places: dict[str, Place]) -> None:
    trusted = at(places["s3"], checksum="trusted")
    report = verified(trusted, at(places["gcs"]))
    # Each write carries a CRC32C, which the store keeps.
    assert (report.is_equal, report.compared, report.read_bytes) == (True, {"CRC32C": 2}, 0)


def test_an_md5_that_differs_proves_nothing(places: dict[str, Place]) -> None:
    wrong = ContentSettings(content_md5=bytearray(md5(b"x", usedforsecurity=False).digest()))
    with places["azure"].container_client() as container:
        for key, body in BODIES.items():
            container.get_blob_client(f"wrong/{key}").upload_blob(body, overwrite=True)
            container.get_blob_client(f"wrong/{key}").set_http_headers(wrong)
    report = verified(at(places["gcs"]), at(places["azure"], "wrong/"))
    assert (report.equal, report.unreadable) == (0, 2)
    assert "content-md5=ignore" in report.differences[0].reason
    ignoring = at(places["azure"], "wrong/", **{"content-md5": "ignore"})
    report = verified(at(places["gcs"]), ignoring)
    assert (report.is_equal, report.compared) == (True, {"CRC32C": 2})


@pytest.mark.parametrize("kind", ["azure", "gcs", "s3"])
@pytest.mark.parametrize("download", [False, True])
def test_a_flipped_bit_is_read_again(places: dict[str, Place], kind: str, download: bool) -> None:
    place = places[kind]
    target = r"^(?!/storage/).*at(/|%2F)[ab](\?|\Z)"
    with running(place.endpoint, [Rule("flip", "GET", target, times=2)]) as proxy:
        source = at(place, endpoint=proxy.url)
        assert verified(source, at(places["file"]), download=download).is_equal
        proxy.schedule.clear()
        proxy.schedule.add(Rule("flip", "GET", target, times=0))
        report = verified(source, at(places["file"]), download=True)
        assert report.unreadable == 2
