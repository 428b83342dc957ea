"""Each field of a job in each face: a right value reaches the job, and a wrong one is refused.

The refusal is one line with the face's own name of the field. The wrong value holds names of
options and braces, which are a user's text and stay as they are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.cli.job_from_options import job_from
from skyplane_orchestration.cli.main import build_parser, main, with_option_names
from skyplane_orchestration.cli.planner_options import limits_from, objective_from, policy_from
from skyplane_orchestration.dagster import build_skyplane_transfer_asset
from skyplane_orchestration.dagster.components import TransferModel
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.flat_job import flat_fields
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.text_values import options_of
from skyplane_orchestration.operators import SkyplaneTransferOperator
from skyplane_orchestration.operators.job_arguments import TYPES

TEXT: Final = "{move} é my encrypt {0} notes.txt"
#: Fields of which `TEXT` is a right value -> a wrong one.
WRONG: Final[dict[str, Any]] = {
    **{f"{end}_url": f"ftp://{TEXT}" for end in ("source", "destination")},
    **{name: {TEXT: "x"} for name in ("headers", "object_metadata", "vcpu_quota")},
    "instance_types": {TEXT: "x"},
    "allow_regions": [TEXT],
    "exclude_regions": [TEXT],
    **dict.fromkeys(("include", "exclude", "publish_last", "files_from"), 5),
}
#: What a job in Python cannot know to be wrong.
LATER: Final = ("source_credential_ref", "destination_credential_ref")
NAMES: Final = [name for name in flat_fields() if name not in LATER]
URLS: Final = {"source_url": "s3://a/", "destination_url": "s3://b/"}


#: Field of an objective -> the objective's kind, its class, and its other fields.
OBJECTIVES: Final[dict[str, tuple[str, type[Any], dict[str, Any]]]] = {
    "value_of_time_usd_per_hour": ("minimize-cost", MinimizeCost, {}),
    "min_throughput_gbps": ("minimize-cost", MinimizeCost, {}),
    "exactly": ("minimize-cost", MinimizeCost, {"min_throughput_gbps": 1}),
    "max_usd_per_gb": ("maximize-throughput", MaximizeThroughput, {}),
    "max_cost_usd": ("maximize-throughput", MaximizeThroughput, {}),
    "deadline_s": ("deadline", Deadline, {}),
}
PARTS: Final[dict[str, type[Any]]] = {
    "source": Location,
    "destination": Location,
    "limits": Limits,
    "policy": Policy,
}
OF_SYNC: Final = ("delete", "max_delete", "allow_unmatched_patterns")
#: Right values, other than those of `right_value`.
RIGHT: Final[dict[str, Any]] = {
    **{f"{end}_url": f"s3://{end}/" for end in ("source", "destination")},
    **{f"{end}_region": "aws:eu-west-3" for end in ("source", "destination")},
    **{f"{end}_endpoint": "http://127.0.0.1:9" for end in ("source", "destination")},
    **dict.fromkeys(LATER, "profile:paris"),
    **{"newer_than": "7d", "older_than": "24h", "min_size": "1K", "max_size": "2G"},
    "manifest_at": "always",
    **{
        "max_delete": "7",
        "bwlimit": "1M",
        "safety_margin": 0.5,
        "confidence": 0.75,
        "instance_types": {"aws": "x"},
    },
    **{"headers": {"Content-Language": "de"}, "vcpu_quota": {"aws": 8}},
    **{"allow_regions": ("aws:*",), "exclude_regions": ("gcp:*",)},
}


def right_value(name: str) -> Any:
    """Another value than the default."""
    hint, default = flat_fields()[name]
    hint = next(one for one in options_of(hint) if one is not type(None))
    if name in RIGHT or hint is bool:
        return RIGHT.get(name, not default)
    if get_origin(hint) is Literal:
        return next(one for one in reversed(get_args(hint)) if one != default)
    others: dict[Any, Any] = {int: 8, float: 8.0, str: "text", tuple: ("x",)}
    return others.get(get_origin(hint) or hint, {"owner": "x"})


def path_of(name: str) -> tuple[str, ...]:
    """Where a job has the field."""
    if name in OBJECTIVES:
        return "objective", {"deadline_s": "seconds"}.get(name, name)
    end, _, of_end = name.partition("_")
    of_end = {"endpoint": "endpoint_url"}.get(of_end, of_end)
    for part, kind in PARTS.items():
        field = of_end if part == end else name
        if field in {one.name for one in fields(kind)}:
            return part, field
    return (name,)


def flat(name: str, value: Any) -> dict[str, Any]:
    more = OBJECTIVES[name][2] if name in OBJECTIVES else {}
    return {**URLS, **more, name: value}


def by_operator(name: str, value: Any) -> TransferJob:
    return SkyplaneTransferOperator(task_id="t", **flat(name, value)).transfer_job()


def by_component(name: str, value: Any) -> TransferJob:
    return TransferModel(name="copy", **flat(name, value)).job()


def by_document(name: str, value: Any) -> TransferJob:
    part, *inner = path_of(name)
    document: dict[str, Any] = TransferJob(Location("s3://a/"), Location("s3://b/")).to_dict()
    if part == "objective":
        kind, _, more = OBJECTIVES[name]
        document[part] = {"kind": kind, **more, inner[0]: value}
    elif inner:
        document[part][inner[0]] = value
    else:
        document[part] = value
    return TransferJob.from_dict(document)


def by_asset(name: str, value: Any) -> None:
    part, *inner = path_of(name)
    given: dict[str, Any] = {"source": "s3://a/", "destination": "s3://b/", part: value}
    if inner:
        _, kind, more = OBJECTIVES[name] if name in OBJECTIVES else ("", PARTS[part], {})
        more = {"url": "s3://a/"} if kind is Location else more
        given[part] = kind(**{**more, inner[0]: value})
    build_skyplane_transfer_asset("copy", **given)


FACES: Final[list[Callable[[str, Any], object]]] = [
    by_operator,
    by_component,
    by_document,
    by_asset,
]


def wrong_values(name: str) -> list[Any]:
    """Values that no face takes; the first has the words of a user, but for lists."""
    hint, _ = flat_fields()[name]
    return [WRONG.get(name, TEXT), *([-1] if {int, float} & {*options_of(hint)} else [])]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("face", FACES)
def test_python_names_the_field(face: Callable[[str, Any], object], name: str) -> None:
    if face is by_operator and name not in TYPES:
        pytest.skip("the operators have no such argument")
    if name == "objective" and face in (by_document, by_asset):
        pytest.skip("they have the objective itself")
    for value in wrong_values(name):
        with pytest.raises((ConfigurationInvalid, ValidationError)) as caught:
            face(name, value)
        if isinstance(caught.value, ValidationError):
            assert [one["loc"][0] for one in caught.value.errors()] == [name]
            continue
        assert isinstance(caught.value, ConfigurationInvalid)
        message = caught.value.message
        assert "\n" not in message
        assert TEXT in message or repr(value) in message
        if face is by_document:
            assert all(one in message for one in path_of(name) if one != "policy"), message
        else:
            assert (path_of(name)[-1] if face is by_asset else name) in caught.value.fields, message


def action_of(verb: str, name: str, value: object = None) -> tuple[str, Any]:
    """The option for a field, or for one value of it, and its action; None without one."""
    parser = build_parser(verb).parse_args([verb, "a", "b"]).parser
    field = Text(FieldName(name, "" if value is None else repr(value)))
    option = with_option_names(field, argparse.Namespace(parser=parser))
    for one in parser._actions:
        if option in (*one.option_strings, one.metavar):
            return option, one
    return "", None


@pytest.mark.parametrize("name", flat_fields())
def test_the_command_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb = "sync" if name in OF_SYNC else "cp"
    option, action = action_of(verb, name)
    if action is None or action.nargs == 0 or name in ("include", "exclude", "publish_last"):
        pytest.skip("no option, or all texts are right")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_bytes(b"a")
    ends = ["src", "dst"]
    if "_endpoint" in name:
        ends[name.startswith("dest")] = "s3://b/"
    own = ["-r"] if verb == "cp" else ["--delete"] if name == "max_delete" else []
    text = {"headers": f"{TEXT}: x", "object_metadata": f"{TEXT}=x"}.get(name, TEXT)
    for value in (text, *map(str, wrong_values(name)[1:])):
        if option in ("SRC", "DST"):
            ends[option == "DST"], more = f"ftp://{value}", []
        else:
            more = [f"{option}={value}"]
        arguments = [verb, *own, *more, *ends]
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.count("\n") == 1
        assert option in err
        assert (TEXT if TEXT in value else value) in err
        assert main([*arguments, "--json"]) == 2
        out, again = capsys.readouterr()
        assert err == again == f"skyplane-orch: {json.loads(out)['error']['message']}\n"
        assert [one.name for one in tmp_path.iterdir()] == ["src"]


def by_command(name: str, value: Any) -> TransferJob:
    verb = "sync" if name in OF_SYNC else "cp"
    option, action = action_of(verb, name, value)
    texts = (
        [f"{key}{': ' if name == 'headers' else '='}{one}" for key, one in value.items()]
        if (isinstance(value, dict))
        else [str(value[0] if isinstance(value, tuple) else value)]
    )
    own = ["--delete"] if verb == "sync" else [] if name == "recursive" else ["-r"]
    own += ["--min-throughput-gbps=1"] if name == "exactly" else []
    ends = ["s3://a/", "s3://b/"]
    if option in ("SRC", "DST"):
        ends[option == "DST"] = value
    elif name != "recursive":
        own += [option] if action.nargs == 0 else [option, *texts]
    options = build_parser(verb).parse_args([verb, *own, *ends])
    return job_from(
        options,
        objective=objective_from(options),
        limits=limits_from(options),
        policy=policy_from(options, ("aws:eu-west-1", "gcp:europe-west1")),
    )


@pytest.mark.parametrize("name", flat_fields())
def test_a_right_value_reaches_the_job(name: str) -> None:
    value = right_value(name)
    if name == "objective":
        value = "cheapest"
        by_path = replace(by_document("recursive", True), objective=MinimizeCost())
        assert by_operator(name, value) == by_component(name, value) == by_command(name, value)
        assert by_operator(name, value) == by_path
        return
    by_path = by_document(name, list(value) if isinstance(value, tuple) else value)
    assert attrgetter(".".join(path_of(name)))(by_path) == value
    if name in TYPES:
        assert by_operator(name, value) == by_path
    if name != "instance_types":  # By cloud, and so no plain value.
        assert by_component(name, value) == by_path
    if name != "files_from":  # The command reads them from a file.
        assert attrgetter(".".join(path_of(name)))(by_command(name, value)) == value
