"""The seconds that objects take: figures of each store by hand, and plans that keep to them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from skyplane_gateway.config import DEFAULT_STORE_THREADS, GatewayConfig
from skyplane_gateway.lead import multipart, pipeline
from skyplane_gateway.stores.async_requests import MAX_SMALL_BYTES
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimits
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, gateway_speed
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.planner import multicast_plan, plan, transfer_time
from skyplane_orchestration.planner.transfer_time import ObjectWork
from skyplane_orchestration.provision import gateway_settings

S3, S3_FAR = "aws:us-east-1", "aws:eu-west-1"
GCS, AZURE = "gcp:europe-west3", "azure:eastus"
FASTEST = MaximizeThroughput(max_cost_usd=1e6)
MANY, SMALL_GB = 10_000_000, 100.0
ONE_AT = "one object moves at 0.65 of the rate of many"


def work(src: str, dst: str, objects: int, volume_gb: float) -> ObjectWork:
    limits = Limits()
    return ObjectWork.of(src, (dst,), objects, volume_gb, limits.part_mib, limits.whole_mib)


@pytest.mark.parametrize(
    ("src", "dst", "objects", "seconds", "words"),
    [
        (S3, S3_FAR, 10_000_000, 10e6 / 3500, "10,000,000 objects at 3,500 writes/s of one prefix"),
        (S3, AZURE, 10_000_000, 10e6 / 5500, "10,000,000 objects at 5,500 reads/s of one prefix"),
        # 20 minutes at 1,000, then at 2,000, at 4,000, and the last 1.6 million at 8,000.
        (S3, GCS, 10_000_000, 3600 + 1.6e6 / 8000, "writes/s of a bucket at first"),
        (GCS, AZURE, 1_000_000, 1e6 / 5000, "1,000,000 objects at 5,000 reads/s of a bucket"),
        (AZURE, AZURE, 10_000_000, 10_000 * 0.18, "10,000,000 objects listed in 10,000 pages"),
    ],
)
def test_a_store_or_a_listing_takes_so_long_for_small_objects(
    src: str, dst: str, objects: int, seconds: float, words: str
) -> None:
    least = work(src, dst, objects, objects * 1e-5).least
    assert least.seconds == pytest.approx(seconds)
    assert words in least.what


def test_one_object_in_parts_is_bound_by_its_parts_and_one_of_azure_by_its_requests() -> None:
    parts = work(S3, S3_FAR, 1, 64.0)
    # 3,815 parts of 16 MiB, 1,024 at a time, each read and written, one begin and one end.
    a_part_s = 0.1 + 64e9 / 3815 / 90e6
    assert parts.counts.reads == 3815
    assert parts.least.seconds == pytest.approx(4 * 2 * a_part_s + 0.2)
    assert work(S3, AZURE, 1, 64.0).least.seconds == pytest.approx(3817 / 500)
    # Objects of 64 MB go whole, 64 at a time: 16 times a read and a write.
    whole = work(S3, S3_FAR, 1000, 64.0).least
    assert whole.seconds == pytest.approx(16 * 2 * (0.1 + 64e6 / 90e6))


def test_the_bounds_grow_with_the_objects_and_no_end_on_this_machine_has_requests() -> None:
    sizes_bytes = (100, 10_000, 1_000_000, 60_000_000, 1_000_000_000)
    for src, dst, size in product((S3, GCS, AZURE), (S3_FAR, GCS, AZURE), sizes_bytes):
        seconds = [work(src, dst, n, n * size / 1e9).least.seconds for n in (1, 100, 10**4, 10**7)]
        assert seconds == sorted(seconds), (src, dst, size)
        assert seconds[0] >= 2 * (0.1 + min(size, 16 << 20) / 90e6)
    local = work("local:here", "local:here", 1000, 1.0)
    assert "listed" in local.least.what or "in flight in the fleet" in local.least.what


def test_a_gateway_has_as_many_requests_in_flight_as_its_code_says() -> None:
    config = GatewayConfig("n", "k", "h", "h", "d")
    assert RateLimits().concurrent == transfer_time.REQUESTS
    assert config.readers == transfer_time.READERS
    assert config.store_threads == DEFAULT_STORE_THREADS
    assert config.assembly_mib << 20 == transfer_time.SINK_BYTES
    assert transfer_time.BATCH_OBJECTS == pipeline.BATCH_OBJECTS
    assert transfer_time.BATCH_BYTES == pipeline.BATCH_BYTES
    assert transfer_time.LEAD_OBJECTS == pipeline._IN_FLIGHT
    assert transfer_time.LEAD_PARTS == multipart._PARTS_IN_FLIGHT
    assert transfer_time.SMALL_BYTES == MAX_SMALL_BYTES
    assert gateway_speed.MOST_PROCESSES == gateway_settings.MOST_PROCESSES


def test_requests_in_flight_at_an_end_count_processes_and_the_memory_of_a_sink(
    shipped: Grid,
) -> None:
    two, four = (shipped.instance_type("aws", name) for name in ("c7gn.large", "c6in.xlarge"))
    small = work(S3, S3_FAR, 1_000_000, 10.0)
    # 64 requests of 100 ms and 10 kB in each of two processes.
    assert small.seconds_with_one(S3, two) == pytest.approx(1e6 * (0.1 + 1e4 / 90e6) / 128)
    assert small.seconds_with_one(S3, four) == small.seconds_with_one(S3, two) / 2
    # A sink of 256 MiB holds four objects of 60 MB, each from its read until its commit.
    large = work(S3, S3_FAR, 1000, 60.0)
    assert large.seconds_with_one(S3_FAR, two) == pytest.approx(1000 * (0.1 + 60 / 90) / 2 / 2)
    assert large.seconds_with_one(S3, two) == pytest.approx(1000 * (0.1 + 60 / 90) / 8 / 2)


# ---------------------------------------------------------------- plans


def planned(grid: Grid, objective: Objective, objects: int | None = MANY) -> TransferPlan:
    return plan(grid, S3, S3_FAR, objective, volume_gb=SMALL_GB, objects=objects)


def test_without_objects_a_transfer_takes_as_long_as_its_bytes(shipped: Grid) -> None:
    found = planned(shipped, FASTEST, None)
    assert found.transfer_s == pytest.approx(800 / found.throughput_gbps)
    few = planned(shipped, FASTEST, 1600)
    assert few.transfer_s == pytest.approx(1600 / 64 * 2 * (0.1 + 62.5 / 90), rel=1e-5)


def test_one_object_is_not_promised_at_the_rate_of_many(shipped: Grid) -> None:
    one = plan(shipped, S3, S3_FAR, FASTEST, volume_gb=64, objects=1)
    assert one.transfer_s == pytest.approx(512 / one.throughput_gbps / 0.65)
    assert f"{ONE_AT}, and the largest has 100 % of the bytes" in one.notes
    small = plan(shipped, S3, S3_FAR, MinimizeCost(1), volume_gb=0.06, objects=1)
    assert small.transfer_s == pytest.approx(2 * (0.1 + 60 / 90))
    deadline = Deadline(75 + 30)
    in_time = plan(shipped, S3, S3_FAR, deadline, volume_gb=64, objects=1)
    assert in_time.provision_s + (in_time.transfer_s or 0.0) <= deadline.seconds * (1 + 1e-6)
    total = one.cost.total_usd or 0.0
    again = plan(
        shipped, S3, S3_FAR, MaximizeThroughput(max_cost_usd=total), volume_gb=64, objects=1
    )
    assert (again.cost.total_usd or 0.0) <= total * (1 + 1e-9)
    assert again.throughput_gbps >= one.throughput_gbps * 0.99


@pytest.mark.parametrize(
    ("objects", "largest", "share", "words"),
    [
        (1001, 500 / 501, 0.65 * 501 / 500, ["largest has 99.8 % of the bytes"]),
        (3, 0.8, 0.65 / 0.8, ["largest has 80 % of the bytes"]),
        # The others take as long as the largest one.
        (1001, 0.65, 1.0, []),
        (1001, 0.0, 1.0, []),
    ],
)
def test_the_largest_object_is_not_promised_at_the_rate_of_many(
    shipped: Grid, objects: int, largest: float, share: float, words: list[str]
) -> None:
    listed = replace(shipped, contents=SourceContents(largest))
    found = plan(listed, S3, S3_FAR, FASTEST, volume_gb=501, objects=objects)
    assert found.transfer_s == pytest.approx(8 * 501 / found.throughput_gbps / share)
    notes = [note for note in found.notes if ONE_AT in note]
    assert notes == [f"{ONE_AT}, and the {one}" for one in words]


def test_a_largest_object_that_is_sent_whole_has_the_rate_of_many() -> None:
    limits = Limits()
    for volume_gb, share in ((64 * 2**20 / 0.9e9, 1.0), (64.01 * 2**20 / 0.9e9, 0.65 / 0.9)):
        made = ObjectWork.of(
            S3, (S3_FAR,), 5, volume_gb, limits.part_mib, limits.whole_mib, largest=0.9
        )
        assert made.share == pytest.approx(share)


@pytest.mark.parametrize("dst", [S3_FAR, S3])
def test_small_objects_that_take_longer_than_the_largest_one_are_named(
    shipped: Grid, dst: str
) -> None:
    listed = replace(shipped, contents=SourceContents(0.9))
    found = plan(listed, S3, dst, FASTEST, volume_gb=100, objects=MANY)
    assert found.transfer_s == pytest.approx(MANY / 3500, rel=1e-5)
    assert any("10,000,000 objects at 3,500 writes/s" in note for note in found.notes)


def test_the_fastest_plan_rents_what_the_store_can_take_and_says_why_it_is_no_faster(
    shipped: Grid,
) -> None:
    found = planned(shipped, FASTEST)
    assert found.transfer_s == pytest.approx(MANY / 3500, rel=1e-5)
    assert found.throughput_gbps == pytest.approx(800 / (MANY / 3500), rel=1e-3)
    # 1,280 requests per second of each instance at the source; a larger one at the sink has more.
    counts = {tag: group.count for tag, group in found.instances.items()}
    assert counts == {found.src: 3, found.dst: 1}
    assert found.binding[0] == "objects"
    (note,) = [note for note in found.notes if "objects" in note]
    assert note.endswith("10,000,000 objects at 3,500 writes/s of one prefix: 47 min 37 s")
    # The network is not held to what a store is expected to take.
    assert found.edges[0].connections == 64


def test_instances_are_billed_while_objects_move(shipped: Grid) -> None:
    found = planned(shipped, MinimizeCost(5))
    assert found.transfer_s is not None
    assert found.transfer_s > 10 * 800 / found.throughput_gbps
    per_s = sum(group.count * group.usd_per_hour for group in found.instances.values()) / 3600
    assert found.cost.instance_usd == pytest.approx(per_s * found.transfer_s)
    assert found.solver.bound <= (found.cost.total_usd or 0.0) * (1 + 1e-9)
    assert found.solver.gap < 0.01


@pytest.mark.parametrize("seconds", [2940, 4000, 10_000])
def test_a_deadline_counts_objects(shipped: Grid, seconds: float) -> None:
    found = planned(shipped, Deadline(seconds))
    assert found.provision_s + (found.transfer_s or 0.0) <= seconds * (1 + 1e-6)


def test_a_deadline_before_the_objects_are_through_names_the_earliest(shipped: Grid) -> None:
    with pytest.raises(PlanInfeasible) as refused:
        planned(shipped, Deadline(2000))
    assert refused.value.binding[:2] == ("deadline", "objects")
    assert refused.value.least_s == pytest.approx(75 + MANY / 3500, rel=1e-3)
    # Neither a quota nor a relay would help.
    words = "10,000,000 objects at 3,500 writes/s of one prefix: 47 min 37 s. Allow more time"
    assert refused.value.message.endswith(words)
    planned(shipped, Deadline(refused.value.least_s or 0.0))


def test_a_deadline_counts_tiny_objects(shipped: Grid) -> None:
    """Of 20 bytes: their rate is below what the solver can tell from none."""
    with pytest.raises(PlanInfeasible) as refused:
        plan(shipped, S3, S3_FAR, Deadline(4000), volume_gb=0.2, objects=MANY)
    least_s = refused.value.least_s or 0.0
    assert least_s > 75 + MANY / 3500
    found = plan(shipped, S3, S3_FAR, Deadline(least_s), volume_gb=0.2, objects=MANY)
    assert found.provision_s + (found.transfer_s or 0.0) <= least_s * (1 + 1e-5)


@pytest.mark.parametrize("usd", [57, 60])
def test_a_ceiling_in_usd_pays_for_the_time_of_objects(shipped: Grid, usd: float) -> None:
    found = planned(shipped, MaximizeThroughput(max_cost_usd=usd))
    assert found.cost.total_usd is not None
    assert found.cost.total_usd <= usd * (1 + 1e-9)
    assert found.transfer_s == pytest.approx(MANY / 3500, rel=2e-3)


def test_plans_within_a_region_and_to_several_destinations_count_objects_too(shipped: Grid) -> None:
    at_home = plan(shipped, S3, S3, FASTEST, volume_gb=SMALL_GB, objects=MANY)
    assert at_home.transfer_s == pytest.approx(MANY / 3500)
    assert at_home.binding == ("objects",)
    with pytest.raises(PlanInfeasible) as refused:
        plan(shipped, S3, S3, Deadline(2000), volume_gb=SMALL_GB, objects=MANY)
    assert refused.value.binding == ("deadline", "objects")
    upload = plan(shipped, "local:here", S3, MinimizeCost(1), volume_gb=SMALL_GB, objects=MANY)
    # One gateway with 64 requests in flight.
    assert upload.transfer_s == pytest.approx(MANY * (0.1 + 1e4 / 90e6) / 64)
    several = multicast_plan(shipped, S3, [S3_FAR, GCS], FASTEST, volume_gb=SMALL_GB, objects=MANY)
    assert several.transfer_s is not None
    assert several.transfer_s >= 3800 * (1 - 1e-9)


def test_few_bytes_in_some_objects_keep_a_price_per_gb(shipped: Grid) -> None:
    """A ceiling per GB is one of the network: else the partition of a quiet day would miss it."""
    for src, dst, usd in ((S3, S3_FAR, 0.05), (S3, S3, 0.01)):
        found = plan(
            shipped, src, dst, MaximizeThroughput(max_usd_per_gb=usd), volume_gb=1e-6, objects=3
        )
        assert found.cost.usd_per_gb <= usd
    ceiling = MaximizeThroughput(max_usd_per_gb=0.2)
    several = multicast_plan(shipped, S3, [S3_FAR, GCS], ceiling, volume_gb=1e-6, objects=3)
    assert several.cost.usd_per_gb <= 0.2
