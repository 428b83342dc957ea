"""Requests and answers of AWS's query and JSON services against botocore's own models of them.

botocore's validator looks at types and required members only; this looks at names that do not
exist, enums, patterns and ranges too, and at answers.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final
from xml.etree import ElementTree

import botocore.loaders
from botocore.model import ServiceModel

from strict_clouds.aws_wire import Answer, Request

#: Services of IAM -> of botocore.
_SERVICES: Final = {
    "ec2": "ec2",
    "servicequotas": "service-quotas",
    "s3": "s3",
    "ssm": "ssm",
    "sts": "sts",
}
#: Types are more than an installed botocore lists; EC2 itself tells which there are.
_OPEN: Final = ("InstanceType",)
_JSON: Final = ("servicequotas", "ssm")
_WHOLE: Final = re.compile(r"-?\d+")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE]-?\d+)?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\d{10}(\.\d+)?")


@cache
def model(service: str) -> ServiceModel:
    """Args: `service` as IAM names it."""
    name = _SERVICES[service]
    loader = botocore.loaders.create_loader()
    return ServiceModel(loader.load_service_model(name, "service-2"), name)


def of_request(request: Request) -> Iterator[str]:
    """What is wrong with a request."""
    known = model(request.service)
    if request.action not in known.operation_names:
        yield "there is no such action"
        return
    shape = known.operation_model(request.action).input_shape
    if request.service in _JSON:
        yield from violations(shape, request.parameters, "")
        return
    sent = dict(request.parameters)
    for name, value in (("Action", request.action), ("Version", known.api_version)):
        if sent.pop(name, "") != value:
            yield f"{name} is not {value}"
    if shape is not None:
        yield from violations(shape, _from_query(shape, sent, request.service == "ec2"), "")
    elif sent:
        yield f"there are no parameters, and so no {', '.join(sent)}"


def of_answer(request: Request, answer: Answer) -> Iterator[str]:
    """What is wrong with a success."""
    operation = model(request.service).operation_model(request.action)
    shape = operation.output_shape
    if shape is None or answer.status >= 300:
        return
    if request.service in _JSON:
        yield from violations(shape, json.loads(answer.body), "")
        return
    root = ElementTree.fromstring(answer.body)
    if wrapper := shape.serialization.get("resultWrapper"):
        (root,) = [one for one in root if _tag(one) == wrapper]
    told = _from_xml(shape, root)
    told.pop("requestId", None)
    yield from violations(shape, told, "")


def _from_query(shape: Any, parameters: Mapping[str, str], is_ec2: bool) -> Any:
    """What a form says, by names of the shape; names that it does not have stay as they are."""
    if "" in parameters:
        return parameters[""]
    grouped: dict[str, dict[str, str]] = defaultdict(dict)
    for key, value in parameters.items():
        head, _, rest = key.partition(".")
        grouped[head][rest] = value
    if shape.type_name == "list":
        if not is_ec2 and not shape.serialization.get("flattened"):
            return _from_query_list(shape, grouped["member"], is_ec2)
        return _from_query_list(shape, parameters, is_ec2)
    names = {_query_name(one, name, is_ec2): name for name, one in shape.members.items()}
    return {
        names.get(head, head): (
            _from_query(shape.members[names[head]], inner, is_ec2) if head in names else inner
        )
        for head, inner in grouped.items()
    }


def _from_query_list(shape: Any, parameters: Mapping[str, str], is_ec2: bool) -> list[Any]:
    grouped: dict[int, dict[str, str]] = defaultdict(dict)
    for key, value in parameters.items():
        number, _, rest = key.partition(".")
        grouped[int(number)][rest] = value
    assert sorted(grouped) == list(range(1, len(grouped) + 1)), f"numbers {sorted(grouped)}"
    return [_from_query(shape.member, inner, is_ec2) for _, inner in sorted(grouped.items())]


def _query_name(shape: Any, name: str, is_ec2: bool) -> str:
    given: str = shape.serialization.get("name", name)
    if is_ec2:
        given = shape.serialization.get("queryName", given[0].upper() + given[1:])
    return given


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _from_xml(shape: Any, element: ElementTree.Element) -> Any:
    """What XML says, by names of the shape; names that it does not have stay as they are."""
    if shape.type_name == "list":
        return [_from_xml(shape.member, one) for one in element]
    if shape.type_name != "structure":
        return element.text or ""
    names = {one.serialization.get("name", name): name for name, one in shape.members.items()}
    return {
        names.get(_tag(one), _tag(one)): (
            _from_xml(shape.members[names[_tag(one)]], one) if _tag(one) in names else one.text
        )
        for one in element
    }


def violations(shape: Any, value: Any, where: str) -> Iterator[str]:
    """Args: `value` has texts for all scalars of a form or of XML, and else those of JSON."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, Mapping):
        for name, one in value.items():
            inside = f"{where}.{name}" if where else name
            if name in shape.members:
                yield from violations(shape.members[name], one, inside)
            else:
                yield f"there is no {inside}"
        for name in shape.required_members:
            if name not in value:
                yield f"{where}.{name} is missing" if where else f"{name} is missing"
    elif kind == "list" and isinstance(value, list):
        yield from _range(shape, len(value), where)
        for number, one in enumerate(value):
            yield from violations(shape.member, one, f"{where}[{number}]")
    elif kind == "map" and isinstance(value, Mapping):
        yield from _range(shape, len(value), where)
        for name, one in value.items():
            yield from violations(shape.value, one, f"{where}.{name}")
    elif kind in ("structure", "list", "map"):
        yield f"{where} is {value!r}, and not a {kind}"
    else:
        yield from _scalar(shape, value, where)


def _scalar(shape: Any, value: Any, where: str) -> Iterator[str]:
    kind = shape.type_name
    if kind == "string":
        if not isinstance(value, str):
            yield f"{where} is {value!r}, and not a string"
            return
        if shape.enum and value not in shape.enum and shape.name not in _OPEN:
            yield f"{where}: {value!r} is none of {', '.join(shape.enum[:12])}"
        pattern = shape.metadata.get("pattern")
        if pattern and not re.fullmatch(pattern, value):
            yield f"{where}: {value!r} does not match {pattern}"
        yield from _range(shape, len(value), where)
    elif kind == "boolean":
        if value not in ("true", "false", True, False):
            yield f"{where}: {value!r} is not true or false"
    elif kind in ("integer", "long"):
        if _WHOLE.fullmatch(str(value)):
            yield from _range(shape, int(value), where)
        else:
            yield f"{where}: {value!r} is no whole number"
    elif kind in ("float", "double"):
        if not _NUMBER.fullmatch(str(value)):
            yield f"{where}: {value!r} is no number"
    elif (
        kind == "timestamp" and not isinstance(value, datetime) and not _TIME.fullmatch(str(value))
    ):
        yield f"{where}: {value!r} is no time"


def _range(shape: Any, size: int, where: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"{where}: {size} is not within {least} and {most}"
