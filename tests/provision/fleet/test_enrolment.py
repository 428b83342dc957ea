"""What an orchestrator and an instance do at an enrolment, over real sockets."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from tests.provision.fleet.enrolling import (
    HOST,
    INSTANCE,
    KEY,
    PEER,
    SECRET,
    Worker,
    config_of,
    waiting_instance,
)

from skyplane_gateway.enrolment.documents import Delivery
from skyplane_orchestration.errors import ConfigurationInvalid, GatewayUnreachable, NotAuthorised
from skyplane_orchestration.security.authority import Authority


def test_an_instance_gets_a_certificate_for_its_own_key_and_its_configuration(
    tmp_path: Path,
) -> None:
    worker = Worker()
    with waiting_instance(worker.authority, tmp_path) as instance:
        key_id = worker.enrol(instance.port)
    assert worker.pinned == [key_id]
    assert len(key_id) == 40
    (delivery,) = instance.deliveries
    assert delivery.gateways.keys() == {INSTANCE}
    delivered = delivery.gateways[INSTANCE]
    assert delivered.config == config_of(worker.authority)
    issued = x509.load_pem_x509_certificate(delivered.certificate_pem.encode())
    shown = x509.load_der_x509_certificate(instance.identity.certificate_der)
    assert issued.public_key() == shown.public_key()
    instance.identity.require_own(
        delivered.certificate_pem,
        authority_pem=instance.document.authority_pem,
        uri=worker.authority.expected_uri(INSTANCE),
    )
    assert not list(tmp_path.iterdir())


def test_each_gateway_process_gets_its_own_certificate(tmp_path: Path) -> None:
    worker = Worker()
    nodes = [f"{INSTANCE}.{process}" for process in range(3)]
    with waiting_instance(worker.authority, tmp_path) as instance:
        worker.enrol(
            instance.port, gateways={node: config_of(worker.authority, node) for node in nodes}
        )
    (delivery,) = instance.deliveries
    for node in nodes:
        instance.identity.require_own(
            delivery.gateways[node].certificate_pem,
            authority_pem=instance.document.authority_pem,
            uri=worker.authority.expected_uri(node),
        )


def test_nothing_is_sent_before_the_key_is_pinned(tmp_path: Path) -> None:
    worker = Worker()

    def crash(key_id: str) -> None:
        worker.pinned.append(key_id)
        raise KeyboardInterrupt

    with waiting_instance(worker.authority, tmp_path) as instance:
        with pytest.raises(KeyboardInterrupt):
            worker.enrol(instance.port, pin=crash)
        assert not instance.deliveries
        # Another worker finds the pin, and goes on.
        key_id = worker.enrol(instance.port)
    assert worker.pinned == [key_id]
    assert len(instance.deliveries) == 1


def test_two_workers_enrol_an_instance_at_the_same_time(tmp_path: Path) -> None:
    both_have_pinned = threading.Barrier(2, timeout=10)
    worker, key_ids = Worker(), []

    def pin(key_id: str) -> None:
        both_have_pinned.wait()

    with waiting_instance(worker.authority, tmp_path) as instance:

        def run() -> None:
            key_ids.append(worker.enrol(instance.port, pin=pin))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(key_ids) == 2
    assert len(set(key_ids)) == 1
    assert len(instance.deliveries) == 1


def test_an_instance_that_refuses_its_configuration_says_why_and_waits_on(tmp_path: Path) -> None:
    worker, refused = Worker(), [True]

    def accept(delivery: Delivery) -> None:
        if refused.pop():
            refused.append(False)
            raise ConfigurationInvalid("the disk is full")

    with waiting_instance(worker.authority, tmp_path, accept=accept) as instance:
        with pytest.raises(ConfigurationInvalid, match="the disk is full"):
            worker.enrol(instance.port)
        assert worker.enrol(instance.port) == worker.pinned[0]


def test_nobody_answers() -> None:
    with pytest.raises(GatewayUnreachable, match=rf"{HOST} \(i-1\) cannot be enrolled now"):
        Worker().enrol(1)


def test_tokens_and_keys_of_instances_launches_and_fleets_differ() -> None:
    authority = Authority(SECRET, KEY)
    tokens = {
        authority.enrolment_token(INSTANCE, "00"),
        authority.enrolment_token(INSTANCE, "01"),
        authority.enrolment_token(PEER, "00"),
        Authority(SECRET, "cd" * 16).enrolment_token(INSTANCE, "00"),
        authority.hello_key(INSTANCE, "00"),
        authority.sealing_key(INSTANCE, "00"),
    }
    assert len(tokens) == 6
    assert {len(token) for token in tokens} == {32}
    assert authority.enrolment_token(INSTANCE, "00") in tokens


@pytest.mark.parametrize("skew_s", [-3500.0, 3500.0])
def test_a_worker_whose_clock_is_wrong_by_less_than_an_hour_enrols(
    tmp_path: Path, skew_s: float
) -> None:
    """What it issues is valid by the instance's clock, and by that of the next worker."""
    wrong = Worker(Authority(SECRET, KEY, wall_clock=lambda: time.time() + skew_s))
    with waiting_instance(wrong.authority, tmp_path) as instance:
        wrong.enrol(instance.port)
    (delivery,) = instance.deliveries
    issued = x509.load_pem_x509_certificate(delivery.gateways[INSTANCE].certificate_pem.encode())
    assert issued.not_valid_before_utc.timestamp() <= time.time()
    assert issued.not_valid_after_utc.timestamp() > time.time() + 3600


@pytest.mark.parametrize("skew_s", [-7300.0, 7300.0])
def test_a_worker_whose_clock_is_wrong_by_hours_is_refused(tmp_path: Path, skew_s: float) -> None:
    right = Worker()
    wrong = Worker(Authority(SECRET, KEY, wall_clock=lambda: time.time() + skew_s))
    with waiting_instance(right.authority, tmp_path) as instance:
        with pytest.raises((GatewayUnreachable, NotAuthorised)):
            wrong.enrol(instance.port)
        assert instance.deliveries == []
        right.enrol(instance.port)
    assert len(instance.deliveries) == 1
