"""Puts the faults of a schedule into its world."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.buckets import Injected
from tests.simulation.meddling import CutOff, Flip, FrameMeddler
from tests.simulation.network import USUAL_BYTES_PER_S
from tests.simulation.schedule import (
    Appear,
    Call,
    Cancel,
    Change,
    Cut,
    Damage,
    Far,
    Fault,
    Frame,
    Kill,
    KillClient,
    Lapse,
    Reset,
    Slow,
    Stop,
    Store,
    Storm,
    Terminate,
    Truncate,
)
from tests.simulation.transport import Meddler

if TYPE_CHECKING:
    from tests.simulation.run import Scene


def plan_faults(scene: Scene) -> None:
    """Faults with a time happen then. Faults with a count are counted from the start."""
    for fault in scene.schedule.faults:
        match fault:
            case Call(number, kind):
                scene.plane.faults[number] = kind
            case Store(side, method, first, count, kind):
                bucket = scene.source if side == "source" else scene.destination
                bucket.faults.append(Injected(method, first, count, kind))
            case _:
                scene.world.after(fault.at_s, partial(_happen, scene, fault))


def _happen(scene: Scene, fault: Fault) -> None:
    if scene.is_calm:
        return
    scene.world.note(f"fault: {fault}")
    match fault:
        case Kill() | Terminate() | Stop():
            _to_gateway(scene, fault)
        case KillClient(_, again_s):
            _kill_client(scene, again_s)
        case Cancel():
            scene.cancel()
        case Lapse():
            scene.destination.lapse()
        case Storm(_, side, for_s, retry_after_s):
            bucket = scene.source if side == "source" else scene.destination
            bucket.refuse(for_s, retry_after_s)
        case Change(_, index, is_deleted):
            _change(scene, index, is_deleted)
        case Appear(_, index, is_deleted):
            _appear(scene, index, is_deleted)
        case Cut() | Reset() | Slow() | Far() | Damage() | Truncate() | Frame():
            _to_hop(scene, fault)


def _to_gateway(scene: Scene, fault: Kill | Terminate | Stop) -> None:
    fleet, world = scene.fleet, scene.world
    node = scene.schedule.nodes[fault.gateway]
    if node not in fleet.gateways or not fleet.gateways[node].is_alive:
        return
    if isinstance(fault, Stop):
        fleet.stop(node)
        world.after(fault.for_s, partial(fleet.wake, node))
        return
    if isinstance(fault, Terminate):
        fleet.terminate(node)
        return
    fleet.kill(node)
    if fault.restart_s is not None:
        world.after(fault.restart_s, partial(_restart, scene, node))


def _restart(scene: Scene, node: str) -> None:
    if not scene.fleet.gateways[node].is_alive and not scene.is_over and not scene.is_calm:
        scene.fleet.start(node)


def _kill_client(scene: Scene, again_s: float) -> None:
    if not scene.orchestrators or scene.is_over:
        return
    scene.orchestrators[-1].process.kill()
    scene.world.after(again_s, scene.orchestrate)


def _change(scene: Scene, index: int, is_deleted: bool) -> None:
    key = scene.schedule.key_of(index)
    if is_deleted:
        scene.source.remove(key)
    else:
        scene.write_source(index, len(scene.source.versions[key]))


def _appear(scene: Scene, index: int, is_deleted: bool) -> None:
    key = scene.schedule.key_of(index)
    if is_deleted:
        scene.destination.remove(key)
    else:
        count = len(scene.destination.versions.get(key, []))
        scene.destination.write(key, b"somebody else's " * (index + 1) + b"!" * count)


def calm(scene: Scene) -> None:
    """All troubles are over, those included that are still to come."""
    scene.is_calm = True
    for bucket in (scene.source, scene.destination):
        bucket.faults.clear()
        bucket.refuse(0.0)
    scene.plane.faults.clear()
    scene.network.heal_all()
    for pipe in scene.network.troubled():
        pipe.reset("Connection reset by peer")
    for gateway in scene.fleet.alive:
        if gateway.process.is_stopped:
            scene.fleet.wake(gateway.process.name)


def _to_hop(scene: Scene, fault: Cut | Reset | Slow | Far | Damage | Truncate | Frame) -> None:
    origin, target = (scene.fleet.host(node) for node in scene.schedule.hops[fault.hop])
    network, world = scene.network, scene.world
    match fault:
        case Cut(_, _, for_s, ways):
            pairs = [(origin, target)] if ways != "back" else []
            pairs += [(target, origin)] if ways != "there" else []
            for pair in pairs:
                network.cut(*pair)
                world.after(for_s, partial(network.heal, *pair))
        case Reset():
            network.reset(origin, target)
        case Slow(_, _, for_s, bytes_per_s):
            weather = network.weather(origin, target)
            weather.bytes_per_s = bytes_per_s
            world.after(for_s, partial(setattr, weather, "bytes_per_s", USUAL_BYTES_PER_S))
        case Far(_, _, latency_s, bytes_per_s):
            for pair in ((origin, target), (target, origin)):
                weather = network.weather(*pair)
                weather.latency_s, weather.bytes_per_s = latency_s, bytes_per_s
        case Damage(_, _, offset):
            _meddle(scene, origin, target, Flip(offset))
        case Truncate(_, _, after_bytes):
            _meddle(scene, origin, target, CutOff(after_bytes))
        case Frame(_, _, kind, nth):
            _meddle(scene, origin, target, FrameMeddler(kind, nth))


def _meddle(scene: Scene, origin: str, target: str, meddler: Meddler) -> None:
    """Put it on one of the connections, at a moment between two messages."""
    for pipe in scene.network.passing(origin, target):
        if not pipe.is_meddled_with:
            pipe.meddle(meddler)
            return
