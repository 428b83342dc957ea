"""Classes behave as those that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, Final, get_type_hints

import pytest

from skyplane_gateway.common import dataclasses as quick

Decorator = Callable[..., Any]

_OPTIONS: Final[tuple[dict[str, bool], ...]] = (
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "order": True},
)


class _Base:
    __slots__ = ()


def _make(decorator: Decorator, name: str, **options: bool) -> Any:
    class Made(_Base):
        kind: ClassVar[str] = "made"
        first: int
        texts: tuple[str, ...] = ("a",)
        rows: list[int] = dataclasses.field(default_factory=list, compare=False)
        named: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
        hidden: str = dataclasses.field(default="x", repr=False, kw_only=True)
        total: int = dataclasses.field(default=0, init=False)
        found: list[int] = dataclasses.field(default_factory=list, init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.first * 2)

    Made.__name__ = Made.__qualname__ = name
    return decorator(**options)(Made)


Standard, Quick = "Standard", "Quick"
_CLASSES: Final = [
    (
        _make(dataclasses.dataclass, f"S{number}", **options),
        _make(quick.dataclass, f"S{number}", **options),
        options,
    )
    for number, options in enumerate(_OPTIONS)
]
for _number, (_, _quick, _) in enumerate(_CLASSES):
    globals()[f"S{_number}"] = _quick  # So that pickle finds them.


def _outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        return call(*arguments, **named)
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.fixture(params=_CLASSES, ids=[str(options) for _, _, options in _CLASSES])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    standard, made, _ = request.param
    return standard, made


def _made_with(cls: Any, is_full: bool) -> Any:
    return cls(first=3, texts=("b",), rows=[1], hidden="y") if is_full else cls(first=1)


@pytest.mark.parametrize("is_full", [True, False])
def test_instances_have_the_same_fields_and_text(pair: tuple[Any, Any], is_full: bool) -> None:
    one, other = (_made_with(cls, is_full) for cls in pair)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert repr(one) == repr(other)
    assert hasattr(one, "__dict__") == hasattr(other, "__dict__")
    changed = [dataclasses.replace(each, first=9) for each in (one, other)]
    assert dataclasses.asdict(changed[0]) == dataclasses.asdict(changed[1])


@pytest.mark.parametrize("arguments", [(), (1, ("a",), [], {}, "x"), (1, 2, 3, 4, 5, 6)])
def test_wrong_arguments_have_the_same_error(pair: tuple[Any, Any], arguments: Any) -> None:
    one, other = (_outcome(lambda cls: repr(cls(*arguments)), cls) for cls in pair)
    assert one == other
    one, other = (_outcome(cls, first=1, unknown=2) for cls in pair)
    assert one == other


def test_comparison_and_hash_are_the_same(pair: tuple[Any, Any]) -> None:
    results = []
    for cls in pair:
        equal, differs = (cls(first=1), cls(first=1, rows=[5])), (cls(first=1), cls(first=2))
        results.append(
            (
                equal[0] == equal[1],
                differs[0] == differs[1],
                equal[0] == 1,
                _outcome(hash, equal[0]) == _outcome(hash, equal[1]),
                _outcome(operator.lt, *differs),
            )
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["first", "other"])
def test_protection_is_the_same(pair: tuple[Any, Any], name: str) -> None:
    results = []
    for cls in pair:
        value = cls(first=1)
        results.append(
            (
                _outcome(setattr, value, name, 7),
                _outcome(delattr, value, name),
            )
        )
    assert results[0] == results[1] or (
        # The standard library's guard of 3.11 knows the class without slots only.
        (name, results[0][0][0]) == ("other", TypeError)
        and {kind for kind, _ in results[1]} == {dataclasses.FrozenInstanceError}
    )


def test_copies_are_equal(pair: tuple[Any, Any]) -> None:
    value = pair[1](first=4, rows=[2])
    for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(made) is type(value)
        assert dataclasses.asdict(made) == dataclasses.asdict(value)


def test_descriptions_are_the_same(pair: tuple[Any, Any]) -> None:
    standard, made = pair
    parameters = [inspect.signature(cls).parameters.values() for cls in (standard, made)]
    for one, other in zip(*parameters, strict=True):
        assert (one.name, one.kind, one.annotation) == (other.name, other.kind, other.annotation)
    assert get_type_hints(made.__init__) == get_type_hints(standard.__init__)
    assert standard.__match_args__ == made.__match_args__
    assert [one.name for one in dataclasses.fields(made)] == [
        one.name for one in dataclasses.fields(standard)
    ]


@pytest.mark.parametrize("below", [dataclasses.dataclass, quick.dataclass])
def test_a_class_below_another_is_as_frozen(below: Decorator) -> None:
    above: Any = _CLASSES[3][1]

    class Lower(above):  # type: ignore[misc]
        more: int = 5

    lower = below(frozen=True, slots=True)(Lower)
    value = lower(1)
    assert (value.first, value.more, value.total) == (1, 5, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.more = 6
    assert value == lower(1)
    assert value != above(1)

    class Loose(above):  # type: ignore[misc]
        pass

    with pytest.raises(TypeError, match="non-frozen"):
        below()(Loose)


def test_own_methods_stay() -> None:
    @quick.dataclass(frozen=True, slots=True)
    class Own:
        value: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Own(1)) == "own"
    assert Own(1) == 2
    assert hash(Own(1)) == hash(Own(1))
