"""The arguments of operators: names and types, which are those of their signatures, and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from inspect import Parameter, Signature, signature
from itertools import product
from operator import or_
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from skyplane_gateway.common.schema import checked
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, holds_template
from skyplane_orchestration.model.text_values import from_text, is_no_text, options_of

#: A value, or a template that renders to one.
Flag = bool | str
Number = float | str | None
if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

    #: What another task has returned.
    Document = Mapping[str, Any] | str | XComArg
else:
    #: What is left of it once the task runs.
    Document = Mapping[str, Any]

_LISTS: Final = (list, tuple, set, frozenset)
#: A text that is a template as a whole.
_WHOLE: Final = re.compile(r"\s*\{[{%].*[%}]\}\s*", re.DOTALL)
_PACKAGE: Final = __name__.partition(".")[0]
Init = TypeVar("Init", bound=Callable[..., None])


def or_template(hint: Any, default: Any) -> Any:
    """The type of an argument for a field of a job: a value of the field, or a template of one.

    Args:
        hint: type of the field.
        default: None adds None to the type.
    """
    found: list[Any] = []
    for one in options_of(hint):
        if get_origin(one) is tuple:
            found += [Sequence[str], str]
        elif get_origin(one) is Mapping:
            # Its values may be templates, too.
            found += [one if get_args(one)[1] is str else Mapping[str, Any], str]
        else:
            found += [one, str] if one in (bool, int, float) else [one]
    return reduce(or_, dict.fromkeys([*found, *([type(None)] if default is None else [])]))


def takes(types: Mapping[str, Any], defaults: Mapping[str, Any]) -> Callable[[Init], Init]:
    """Give an `__init__` of `**kwargs` the signature that Airflow and others read.

    Args:
        types, defaults: of all its arguments.
    """

    def give(init: Init) -> Init:
        own, others = signature(init).parameters.values()
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
            for name, hint in types.items()
        ]
        init.__annotations__ = {**types, "return": None}
        init.__signature__ = Signature([own, *named, others])  # type: ignore[attr-defined]
        return init

    return give


def names_of(init: Any) -> tuple[str, ...]:
    """The arguments of an operator's `__init__`, without those of its bases."""
    parameters = signature(init).parameters.values()
    return tuple(one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY)


@cache
def accepted_by(operator: type[Any]) -> frozenset[str]:
    """All arguments of an operator, those of Airflow's base included."""
    named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    inits = [vars(base)["__init__"] for base in operator.__mro__ if "__init__" in vars(base)]
    found = (one for init in inits for one in signature(init).parameters.values())
    return frozenset(one.name for one in found if one.kind in named) - {"self"}


def is_own(kind: type[Any]) -> bool:
    """Whether a class is of this package."""
    return kind.__module__.partition(".")[0] == _PACKAGE


@cache
def types_of(operator: type[Any]) -> dict[str, Any]:
    """Argument -> the type of its rendered value, for the arguments that this package knows."""
    found: dict[str, Any] = {}
    for base in reversed(operator.__mro__):
        init = vars(base).get("__init__")
        if init is not None and is_own(base):
            hints = get_type_hints(init)
            found |= {name: _rendered(hints[name]) for name in names_of(init)}
    return found


def _rendered(hint: Any) -> Any:
    options = options_of(hint)
    # Text is then only a template of the other type.
    others = [option for option in options if option not in (str, type(None))]
    kept = [option for option in options if option is not str or not others]
    return reduce(or_, kept)


def rendered(hint: Any, value: Any, name: str, *, is_whole: bool = False) -> Any:
    """The value of an argument. Raises ConfigurationInvalid if it is not of this type.

    Args:
        is_whole: the whole argument was a template, or is the output of another task.
    """
    # A missing filter or bound would copy, or delete, all objects. Only a document may be missing.
    if is_whole and _is_none(value) and Mapping[str, Any] not in options_of(hint):
        raise _misread(name, None)
    return checked(hint, from_text(hint, value, is_whole=is_whole), name)


def is_entry(hint: Any, given: object) -> bool:
    """Whether a text in place of a list is an entry of it, since its template is only a part."""
    is_part = isinstance(given, str) and not _WHOLE.fullmatch(given)
    return is_part and any(get_origin(one) is Sequence for one in options_of(hint))


def refuse_misread(name: str, given: object, found: object, *, is_entry: bool = False) -> None:
    """Raise ConfigurationInvalid if a template inside an argument gave no text.

    Args:
        given: the argument before its templates were rendered.
        is_entry: it is in a list, so that the text of a list would be a pattern or a key.
    """
    if isinstance(given, TransferJob | Location):
        given = given.to_dict()
    if isinstance(given, Mapping) and isinstance(found, Mapping):
        for key, one in given.items():
            refuse_misread(f"{name}.{key}", one, found.get(key))
    elif isinstance(given, _LISTS) and isinstance(found, _LISTS):
        # A set has no order.
        of_set = isinstance(given, set | frozenset)
        for one, other in product(given, found) if of_set else zip(given, found, strict=True):
            refuse_misread(name, one, other, is_entry=True)
    elif isinstance(given, str) and holds_template(given):
        is_wrong = is_entry and isinstance(found, str) and is_no_text(found)
        if is_wrong or _is_none(found):
            raise _misread(name, None if _is_none(found) else found)


def _is_none(value: object) -> bool:
    return value is None or (isinstance(value, str) and value == "None")


def _misread(name: str, value: object) -> ConfigurationInvalid:
    return ConfigurationInvalid(
        f"{name} must not be {value!r}, which its template gives; correct the template"
    )


def is_known(value: object) -> bool:
    """Whether a value has no template, and is no output of another task."""
    if isinstance(value, str):
        return not holds_template(value)
    if isinstance(value, Mapping):
        return all(is_known(inner) for inner in value.values())
    if isinstance(value, _LISTS):
        return all(is_known(inner) for inner in value)
    # Outputs of other tasks, mapped arguments; and functions, which Airflow calls.
    return not (hasattr(value, "iter_references") or callable(value))
