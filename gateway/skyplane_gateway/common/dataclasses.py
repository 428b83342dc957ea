"""The standard library's `dataclass`, which defines a class in a fraction of the time.

The standard library compiles the text of six methods of each class. A command loads 230 of them,
which took a fifth of the time of a small job. Here equality, text and protection are closures, and
`__init__` is compiled when it is first needed.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """As the standard library's, but for `InitVar`, which it does not know."""
        return partial(_made, options) if cls is None else _made(options, cls)


def _made(options: dict[str, Any], cls: Any) -> Any:
    if options.get("order"):
        return dataclasses.dataclass(**options)(cls)
    own = {name for name, value in cls.__dict__.items() if value is not None}
    is_frozen = options.get("frozen", False)
    cls.__doc__ = cls.__doc__ or cls.__name__  # Else the standard library writes its signature.
    # A class below a frozen one has to be frozen.
    below = is_frozen and any(map(is_dataclass, cls.__mro__[1:]))
    mine = {"init": False, "repr": False, "eq": False, "frozen": below}
    made: Any = dataclasses.dataclass(**{**options, **mine})(cls)
    made.__dataclass_params__.frozen = is_frozen
    methods: dict[str, Any] = {}
    if options.get("init", True):
        methods["__init__"] = _Initializer(made, is_frozen=is_frozen)
    if options.get("repr", True):
        methods["__repr__"] = _representation(made)
    if options.get("eq", True):
        methods["__eq__"], hashed = _comparison(made)
        methods["__hash__"] = hashed if is_frozen else None
    if is_frozen and not below:
        methods |= {"__setattr__": _guard(made, "assign to"), "__delattr__": _guard(made, "delete")}
        if options.get("slots"):
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


class _Initializer:
    """Compiles the `__init__` of a class, and puts it in its place."""

    def __init__(self, made: Any, *, is_frozen: bool) -> None:
        self._made, self._is_frozen = made, is_frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        made = self._made
        made.__init__ = compiled = _compiled(made, is_frozen=self._is_frozen)
        return compiled.__get__(instance, owner)


def _compiled(made: Any, *, is_frozen: bool) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    positional, lines = ["self"], ["pass"]
    named: list[str] = []
    for one in fields(made):
        value = name = one.name
        if one.default_factory is not MISSING:
            names[default := f"_of_{name}"] = one.default_factory
            value = f"{default}() if {name} is _MISSING else {name}" if one.init else f"{default}()"
            default = "_MISSING"
        elif one.default is not MISSING:
            names[default := f"_of_{name}"] = one.default
            value = name if one.init else default
        elif not one.init:
            continue
        else:
            default = ""
        if one.init:
            (named if one.kw_only else positional).append(f"{name}={default}" if default else name)
        lines.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    text = f"def made({', '.join(names)}):\n def __init__({parameters}):\n  "
    scope: dict[str, Any] = {}
    # Names in annotations are those of the module.
    module = vars(sys.modules[made.__module__]) if made.__module__ in sys.modules else {}
    exec(text + "\n  ".join(lines) + "\n return __init__", module, scope)
    function = scope["made"](**names)
    function.__qualname__ = f"{made.__qualname__}.__init__"
    types = {one.name: one.type for one in fields(made) if one.init}
    function.__annotations__ = {**types, "return": None}
    return function


def _representation(made: Any) -> Callable[[Any], str]:
    names = [one.name for one in fields(made) if one.repr]

    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparison(made: Any) -> tuple[Callable[[Any, object], Any], Callable[[Any], int]]:
    values = _values(one.name for one in fields(made) if one.compare)
    hashed = _values(
        one.name for one in fields(made) if (one.compare if one.hash is None else one.hash)
    )

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return __eq__, __hash__


def _values(names: Iterable[str]) -> Callable[[Any], Any]:
    first = next(names := iter(names), None)
    # Of one name `attrgetter` returns the value alone, and there is none of no name.
    return type if first is None else attrgetter(first, first, *names)


def _guard(made: Any, verb: str) -> Callable[..., None]:
    names = {one.name for one in fields(made)}
    method = "__setattr__" if verb == "assign to" else "__delattr__"

    def guard(self: Any, name: str, *value: Any) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot {verb} field {name!r}")
        getattr(super(made, self), method)(name, *value)

    return guard


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, values: list[Any]) -> None:
    for one, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, one.name, value)
