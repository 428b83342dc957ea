from __future__ import annotations

import inspect
import json

import pytest

import skyplane_gateway.protocol.errors as protocol_errors
from skyplane_orchestration import errors
from skyplane_orchestration.errors import (
    PlanInfeasible,
    SkyplaneError,
    SolverFailed,
    TransferFailed,
    from_dict,
)


def tree(root: type[SkyplaneError]) -> list[type[SkyplaneError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]


PUBLIC = [
    cls
    for cls in tree(SkyplaneError)
    if cls.__module__ in ("skyplane_gateway.common.errors", "skyplane_orchestration.errors")
]


#: Scripts, journals and gateways of another release know errors by these names.
CODES = """
address-taken already-exists budget-reached cancelled capacity-unavailable
checksum-mismatch cloud-access-denied cloud-unavailable configuration-invalid
credentials-expired credentials-too-wide destinations-failed empty-source fleet-lost
foreign-host gateway-draining gateway-error gateway-lost gateway-unreachable grid-invalid
instance-type-not-offered internal-error invalid-key invalid-location journal-unreadable
launch-refused manifest-unreadable metadata-not-carried missing-extra mount-failed not-authorised
not-found not-restored object-too-large objects-differ objects-failed overloaded path-ended
permission-denied
plan-error plan-infeasible precondition-failed provision-failed quota-exceeded
read-back-mismatch skyplane solver-failed stale-epoch stopped store-error
store-unavailable teardown-incomplete throttled too-many-deletes too-many-fleets
transfer-failed unauthenticated unknown-region unknown-transfer
"""


def test_no_code_changes_when_a_class_is_renamed() -> None:
    assert sorted({cls.code for cls in PUBLIC}) == CODES.split()


def test_every_error_has_a_code_of_its_own() -> None:
    everything = tree(SkyplaneError)
    codes = [cls.__dict__.get("code") for cls in everything]
    assert None not in codes, "a class without a code would be rebuilt as its parent"
    assert len(set(codes)) == len(codes)
    assert {cls.__module__ for cls in everything} >= {protocol_errors.__name__}


def test_the_module_names_the_whole_tree() -> None:
    assert {cls.__name__ for cls in PUBLIC} <= set(vars(errors))


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.code)
@pytest.mark.parametrize("is_permanent", [True, False])
def test_an_error_survives_the_way_to_another_process(
    cls: type[SkyplaneError], is_permanent: bool
) -> None:
    error = (
        cls("what happened; what to do", is_permanent=is_permanent)
        if ("is_permanent" in inspect.signature(cls).parameters)
        else cls("what happened; what to do")
    )
    again = from_dict(json.loads(json.dumps(error.to_dict())))
    assert type(again) is cls
    assert (str(again), again.message, again.code, again.is_permanent) == (
        str(error),
        error.message,
        error.code,
        error.is_permanent,
    )


def test_fields_that_are_not_sent_have_a_neutral_value() -> None:
    infeasible = from_dict(PlanInfeasible("no", binding=("egress",), most_gbps=2.0).to_dict())
    assert isinstance(infeasible, PlanInfeasible)
    assert (infeasible.binding, infeasible.most_gbps) == ((), None)
    failed = from_dict(TransferFailed("no", result=object()).to_dict())
    assert isinstance(failed, TransferFailed)
    assert failed.result is None


def test_an_unknown_code_is_still_an_error() -> None:
    error = from_dict({"code": "of-next-year", "message": "m", "is_permanent": True})
    assert type(error) is SkyplaneError
    assert (error.message, error.is_permanent) == ("m", True)
    assert from_dict({}).message == "unknown error"


def test_permanence_of_one_error_does_not_stick_to_its_class() -> None:
    assert SolverFailed("a", is_permanent=True).is_permanent
    assert not SolverFailed("b").is_permanent
