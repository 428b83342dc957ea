"""Every argument of every operator is of its type before anything starts, however it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import product
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowFailException,
    BaseOperator,
    TaskDeferred,
)
from tests.fake_client import PLAN, FakeClient
from tests.operators.conftest import FakeHook

import skyplane_orchestration.operators as public
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import SkyplaneTransferGroup, SkyplaneTransferOperator
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.storage.compare import VerifyReport

ENDS: Final[dict[str, Any]] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}
TRUE, FALSE = ("true", "True", "TRUE", "t", "T", "1"), ("false", "False", "FALSE", "f", "F", "0")
#: What templates of operators with texts render to.
TEXTS: Final = (
    *("truee", "", "None", "2", "1.5", "nan"),
    *("['*.csv', '*.tmp']", "[1]", "[ab]*", "{'aws': 8}", "{{ x }}"),
)
VALUES: Final[tuple[Any, ...]] = (
    "false",
    *TEXTS,
    1,
    1.5,
    math.nan,
    True,
    None,
    ["*.csv"],
    [1],
    {},
    Path(),
)
#: Of an argument whose type another one has, which is read with all values.
EDGES: Final[tuple[Any, ...]] = ("truee", "", "nan", math.nan, None, [1], {})
EDGE_WORDS: Final = ("t", "0", "truee", None, True)
WAYS: Final = ("literal", "template", "native")

OPERATORS: Final = [
    one
    for name in public.__all__
    if isinstance(one := getattr(public, name), type) and issubclass(one, BaseOperator)
]


EQUAL: Final = VerifyReport(
    "s3://src/", "s3://dst/", 9, 9, 0, 0, 0, None, 9, 0, has_checksums=True, differences=()
)


def own_arguments(operator: type[BaseOperator]) -> dict[str, Any]:
    """Argument -> annotation, of the classes that are not Airflow's."""
    found: dict[str, Any] = {}
    for base in operator.__mro__:
        init = vars(base).get("__init__")
        if init is not None and base.__module__.startswith("skyplane_orchestration"):
            hints = get_type_hints(init)
            for one in signature(init).parameters.values():
                if one.kind is Parameter.KEYWORD_ONLY:
                    found[one.name] = str(hints[one.name])
    return found


#: Operator -> its own arguments.
OWN: Final = {operator: own_arguments(operator) for operator in OPERATORS}


def pairs() -> Iterator[tuple[type[BaseOperator], str]]:
    """Each argument with one operator that has it, since all take it from one base."""
    seen: set[tuple[str, str]] = set()
    for operator in reversed(OPERATORS):
        for name, annotation in OWN[operator].items():
            if (name, annotation) not in seen:
                seen.add((name, annotation))
                yield operator, name


def firsts() -> set[str]:
    """The first argument of each type: one function reads all that have it."""
    kinds: dict[str, str] = {}
    for operator, name in pairs():
        kinds.setdefault(OWN[operator][name].partition("[")[0], name)
    return set(kinds.values())


def made(operator: type[Any], **arguments: Any) -> Any:
    required: dict[str, Any] = {}
    if "source_url" in OWN[operator] and "job" not in arguments:
        required = dict(ENDS)
    if "plan" in OWN[operator]:
        required["plan"] = PLAN.to_dict()
    return operator(task_id="t", **{**required, **arguments})


def is_right(annotation: str, value: object) -> bool:
    """Whether a rendered and read value is what the annotation says."""
    if value is None:
        return "None" in annotation or "Optional" in annotation
    if annotation.startswith("bool"):
        return type(value) is bool
    if annotation.startswith("float"):
        return type(value) is float and math.isfinite(value)
    if annotation.startswith("int"):
        return type(value) is int
    if "Sequence[str" in annotation:
        wanted: Any = str if "Location" not in annotation else (str, Mapping)
        return isinstance(value, tuple) and all(isinstance(one, wanted) for one in value)
    if "TransferJob" in annotation:
        return isinstance(value, TransferJob | Mapping)
    if annotation.startswith("collections.abc.Mapping"):
        return isinstance(value, Mapping)
    if "Literal" in annotation:
        return isinstance(value, str) and f"'{value}'" in annotation
    assert annotation.startswith(("str", "<class 'str'>")), annotation
    return isinstance(value, str)


FIRSTS: Final = firsts()


@pytest.mark.parametrize(("operator", "name"), list(pairs()))
def test_an_argument_is_of_its_type_or_nothing_starts(
    hook: FakeHook,
    context: Any,
    monkeypatch: pytest.MonkeyPatch,
    operator: type[Any],
    name: str,
) -> None:
    annotation = OWN[operator][name]
    wrong: list[str] = []
    monkeypatch.setattr(FakeClient, "verify", lambda *_, **__: EQUAL)
    # Templates of the other arguments are not of interest, and rendering takes long.
    monkeypatch.setattr(operator, "template_fields", (name,))
    values, ways = (VALUES, WAYS) if name in FIRSTS else (EDGES, WAYS[:2])
    for value, way in product(values, ways):
        given = value if way == "literal" else "{{ params.x }}"
        hook.clients.clear()
        what = f"{name}={value!r} ({way})"
        try:
            with DAG("d", schedule=None, render_template_as_native_obj=way == "native"):
                task = made(operator, **{name: given})
            task.render_template_fields({**context, "params": {"x": value}, "x": "later"})
            task.execute(context)
        except (ConfigurationInvalid, AirflowFailException) as error:
            # A client that was opened has only been asked for what the values themselves mean.
            is_late = any(client.calls for client in hook.clients.values())
            if "\n" in str(error) or is_late:
                wrong.append(f"{what}: {error}; clients: {hook.clients}")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
        except TaskDeferred:
            assert name == "deferrable"
        else:
            if not is_right(annotation, getattr(task, name)):
                wrong.append(f"{what} becomes {getattr(task, name)!r}")
    assert not wrong, "\n".join(wrong)


FLAGS: Final = [
    (operator, name)
    for operator, name in pairs()
    if OWN[operator][name].startswith(("bool", "<class 'bool'>"))
]


def test_there_are_flags_in_each_face() -> None:
    found = {(operator.__name__, name) for operator, name in FLAGS}
    for pair in (
        ("SkyplaneVerifyOperator", "move"),
        ("SkyplaneVerifyOperator", "delete"),
        ("SkyplaneTransferOperator", "cancel_on_kill"),
        ("SkyplaneSweepOperator", "orphaned_uploads"),
        ("SkyplaneVerifyOperator", "download"),
    ):
        assert pair in found


@pytest.mark.parametrize(("operator", "name"), FLAGS)
def test_a_flag_is_one_of_twelve_words(
    hook: FakeHook,
    context: Any,
    monkeypatch: pytest.MonkeyPatch,
    operator: type[Any],
    name: str,
) -> None:
    monkeypatch.setattr(operator, "template_fields", (name,))
    expected: dict[Any, bool] = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
    is_first = name in FIRSTS
    for is_native in (False, True) if is_first else (False,):
        for word in (*TRUE, *FALSE, *TEXTS, None, True, False) if is_first else EDGE_WORDS:
            with DAG("d", schedule=None, render_template_as_native_obj=is_native):
                task = made(operator, **{name: "{{ params.x }}"})
            task.render_template_fields({**context, "params": {"x": word}})
            if word in expected or isinstance(word, bool):
                assert task.arguments()[name] is expected.get(word, word)
                continue
            hook.clients.clear()
            with pytest.raises(
                AirflowFailException, match=rf"{name} (must be true or|must not be None|is '{{)"
            ):
                task.execute(context)
            assert hook.clients == {}


@pytest.mark.parametrize("name", ["move", "delete"])
def test_a_mapped_false_is_false(hook: FakeHook, context: Any, name: str) -> None:
    with DAG("d", schedule=None):
        mapped: Any = SkyplaneTransferOperator.partial(task_id="t", **ENDS).expand_kwargs(
            [{name: "false"}]
        )
    task = mapped.unmap({name: "false"})
    task.render_template_fields(context)
    task.execute(context)
    ((job, _),) = hook.clients["t"].of("run")
    assert getattr(job, name) is False


def test_a_list_is_read_where_the_whole_argument_was_a_template(hook: FakeHook) -> None:
    params = {"skip": ["*.csv", "*.tmp"], "json": '["a"]', "glob": "[ab]*", "one": "*.tmp"}

    def read(given: Any, *, is_native: bool = False) -> tuple[str, ...]:
        with DAG("d", schedule=None, render_template_as_native_obj=is_native):
            task = SkyplaneTransferOperator(task_id="t", exclude=given, **ENDS)
        task.render_template_fields({"params": params})
        return task.transfer_job().exclude

    for is_native in (False, True):
        assert read("{{ params.skip }}", is_native=is_native) == ("*.csv", "*.tmp")
        assert read("{{ params.json }}", is_native=is_native) == ("a",)
        assert read("{{ params.glob }}", is_native=is_native) == ("[ab]*",)
        assert read("{{ params.one }}", is_native=is_native) == ("*.tmp",)
    assert read("[ab]*") == ("[ab]*",)
    assert read("['*.csv']") == ("['*.csv']",)
    assert read(["{{ params.glob }}", "x"]) == ("[ab]*", "x")
    assert read(" {{ params.skip }}\n") == ("*.csv", "*.tmp")
    assert read("{% if 1 %}{{ params.skip }}{% endif %}") == ("*.csv", "*.tmp")
    assert read("[{{ params.one[0] }}b]*") == ("[*b]*",)


#: Beside a template, or of two templates, a list is neither a pattern nor a list.
BESIDE: Final = (
    *("tmp/{{ x }}", "{{ x }}/**", "tmp/{{ x | tojson }}", "{{ x }}{{ x }}", "{{ x[0] }},{{ x }}"),
    *(["tmp/{{ x }}"], ("{{ x }}/**",), "['{{ x[0] }}']", '["{{ x[0] }}", "b"]'),
)


@pytest.mark.parametrize("name", ["exclude", "include", "publish_last", "files_from"])
@pytest.mark.parametrize("given", BESIDE)
@pytest.mark.parametrize("is_native", [False, True])
def test_a_list_beside_a_template_is_no_pattern(
    hook: FakeHook, context: Any, name: str, given: Any, is_native: bool
) -> None:
    with DAG("d", schedule=None, render_template_as_native_obj=is_native):
        task = made(SkyplaneTransferOperator, **{name: given})
    task.render_template_fields({**context, "x": ["*.csv", "tmp/"]})
    if isinstance(getattr(task, name), list) and isinstance(given, str):
        return  # A native environment is there to make lists of such texts.
    with pytest.raises(AirflowFailException, match=name):
        task.execute(context)
    assert hook.clients == {}


NO_TEXTS: Final[tuple[Any, ...]] = (
    *({"a": 1}, {"a": 1}.values(), frozenset({"a:*"}), range(2), True, None),
    *(["a:*"], {"a:*"}, (one for one in "a"), object()),
)


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("name", ["exclude", "include", "files_from", "exclude_regions"])
def test_what_is_no_text_becomes_no_pattern(
    hook: FakeHook, context: Any, monkeypatch: pytest.MonkeyPatch, name: str, is_native: bool
) -> None:
    monkeypatch.setattr(SkyplaneTransferOperator, "template_fields", ("job", name))
    document = TransferJob.from_dict({"schema_version": 1} | PLACES).to_dict()
    where = "policy" if name.endswith("regions") else ""
    for value in NO_TEXTS:
        # A native environment makes a set of the values themselves, which may fail in Airflow.
        sets = [] if is_native else [{"{{ x }}"}]
        for entry in ("{{ x }}", ["{{ x }}"], ("{{ x }}",), *sets):
            inside = {where: document[where] | {name: entry}} if where else {name: entry}
            for given in ({name: entry}, {"job": document | inside}):
                with DAG("d", schedule=None, render_template_as_native_obj=is_native):
                    task = made(SkyplaneTransferOperator, **given)
                task.render_template_fields({**context, "x": value})
                hook.clients.clear()
                is_list = isinstance(value, list | set) or (
                    is_native and isinstance(value, frozenset)
                )
                if entry != "{{ x }}" or not is_list:
                    with pytest.raises(AirflowFailException, match=name):
                        task.execute(context)
                    assert not any(client.calls for client in hook.clients.values())
                    continue
                task.execute(context)
                ((job, _),) = hook.clients["t"].of("run")
                found = getattr(job.policy if where else job, name)
                assert found == tuple(value), (given, found)


PLACES: Final = {"source": {"url": "s3://src/"}, "destination": {"url": "s3://dst/"}}
BOUNDS_OF_A_JOB: Final[list[dict[str, Any]]] = [
    {"newer_than": "{{ x }}"},
    {"max_size": "{{ x }}"},
    {"bwlimit": "{{ x }}"},
    {"policy": {"max_job_usd": "{{ x }}"}},
    {"limits": {"instance_limit": "{{ x }}"}},
]
#: Bounds whose loss would copy more, or cost more, and how an error names them.
BOUNDS: Final[list[tuple[dict[str, Any], str]]] = [
    *[
        ({name: "{{ x }}"}, name)
        for name in ("files_from", "include", "exclude", "newer_than", "max_job_usd", "manifest")
    ],
    *[
        ({"job": {"schema_version": 1, **PLACES, **bound}}, r"job\.\S*")
        for bound in BOUNDS_OF_A_JOB
    ],
]


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize(("arguments", "named"), BOUNDS)
def test_a_bound_whose_template_gives_none_is_not_left_out(
    hook: FakeHook, context: Any, arguments: dict[str, Any], named: str, is_native: bool
) -> None:
    with DAG("d", schedule=None, render_template_as_native_obj=is_native):
        task = made(SkyplaneTransferOperator, **arguments)
    task.render_template_fields({**context, "x": None})
    with pytest.raises(AirflowFailException, match=f"{named} must not be None"):
        task.execute(context)
    assert hook.clients == {}


@pytest.mark.parametrize("is_native", [False, True])
def test_a_text_without_a_template_stays_a_text(
    hook: FakeHook, context: Any, is_native: bool
) -> None:
    texts = {"exclude": ("2024", "[1]", "None"), "max_delete": "10"}
    job = TransferJob(Location("s3://src/"), Location("s3://dst/"), **texts)  # type: ignore[arg-type]
    for given in ({"job": job}, {"job": job.to_dict()}, {**ENDS, **texts}):
        with DAG("d", schedule=None, render_template_as_native_obj=is_native):
            task = SkyplaneTransferOperator(task_id="t", **given)
        task.render_template_fields(context)
        assert task.transfer_job() == job


@pytest.mark.parametrize("name", ["newer_than", "max_job_usd", "files_from", "exclude", "move"])
def test_another_task_that_gave_nothing_removes_no_bound(
    hook: FakeHook, context: Any, name: str
) -> None:
    with DAG("d", schedule=None) as dag:
        task = made(SkyplaneTransferOperator, **{name: dag.param(name, None)})
    task.render_template_fields({**context, "params": {name: None}})
    with pytest.raises(AirflowFailException, match=f"{name} must not be None"):
        task.execute(context)
    assert hook.clients == {}


def test_an_object_is_read_where_the_whole_argument_was_a_template(hook: FakeHook) -> None:
    job = TransferJob.from_dict
    task = SkyplaneTransferOperator(
        task_id="t", vcpu_quota="{{ params.quota }}", move="{{ params.move }}", **ENDS
    )
    task.render_template_fields({"params": {"quota": {"aws": 8}, "move": False}})
    assert (task.transfer_job().limits.vcpu_quota, task.transfer_job().move) == ({"aws": 8}, False)
    document = {"schema_version": 1, "source": {"url": "s3://a/"}, "destination": {"url": "b"}}
    for given in ("{{ params.job }}", {**document, "move": "{{ params.move }}"}):
        task = SkyplaneTransferOperator(task_id="t", job=given)
        task.render_template_fields({"params": {"job": document, "move": False}})
        assert task.transfer_job() == job(document)


def test_a_group_checks_its_arguments_when_it_is_made() -> None:
    for wrong in ({"move": "truee"}, {"deferrable": "no"}, {"outlets": "s3://x"}, {"exclude": 1}):
        with DAG("d", schedule=None), pytest.raises(ConfigurationInvalid, match=next(iter(wrong))):
            SkyplaneTransferGroup("copy", **{**ENDS, **wrong})
    with DAG("d", schedule=None):
        group = SkyplaneTransferGroup("copy", move="{{ params.x }}", deferrable="f", **ENDS)
    group.plan.render_template_fields({"params": {"x": False}})
    assert group.plan.transfer_job().move is False
    assert group.transfer.arguments(["deferrable"]) == {"deferrable": False}


def test_every_argument_is_a_template_field() -> None:
    for operator in OPERATORS:
        own: Sequence[str] = tuple(OWN[operator])
        assert set(own) == set(operator.template_fields)
    assert SkyplaneOperator.template_fields == ("skyplane_conn_id", "fleet_name")
