"""What no face copies to several destinations: one line, before anything is started."""

# No postponed annotations: Dagster reads those of the functions.

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from tests.dagster.conftest import lab  # noqa: F401
from tests.operators.conftest import context, hook  # noqa: F401

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.dagster import SkyplaneResource, skyplane_assets
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import SkyplaneTransferOperator
from skyplane_orchestration.provision.local import LocalProvisioner

SOURCE = "s3://src/models/"
PAIR = ("s3://a/", "s3://b/")
#: Destinations, other arguments, and what the line says.
Refused = tuple[Sequence[str], dict[str, Any], str]
REFUSED: dict[str, Refused] = {
    "twice": (("s3://a/", "s3://b/", "s3://a"), {}, "s3://a/ is given more than once"),
    "the source": (("s3://a/", SOURCE), {}, "are the same place"),
    "in the source": (("s3://a/", f"{SOURCE}x/"), {}, f"{SOURCE}x/ lies in the source"),
    "in another": (("s3://a/x/", "s3://a/"), {}, "s3://a/x/ lies in the destination s3://a/"),
    "around another": (("s3://a/", "s3://a/x"), {}, "s3://a/x lies in the destination s3://a/"),
    "a move": (PAIR, {"move": True}, "move"),
    "a manifest": (PAIR, {"manifest": "/m.csv"}, "manifest"),
}


def by_client(urls: Sequence[str], arguments: dict[str, Any], request: Any) -> str:
    manifest = arguments.pop("manifest", None)
    client = Client(identity=RunIdentity("d", "c", "r"), provisioner=LocalProvisioner())
    first, *further = map(Location, urls)
    job = TransferJob(Location(SOURCE), first, **arguments)
    with pytest.raises(ConfigurationInvalid) as refused:
        client.run_to_all(job, further, manifest=manifest)
    return str(refused.value)


def by_operator(urls: Sequence[str], arguments: dict[str, Any], request: Any) -> str:
    request.getfixturevalue("hook")
    given: dict[str, Any] = {"source_url": SOURCE, "destinations": list(urls), **arguments}
    # Airflow shows the first when it reads the file, and does not retry after the other.
    with pytest.raises((ConfigurationInvalid, AirflowFailException)) as refused:
        SkyplaneTransferOperator(task_id="t", **given).execute(request.getfixturevalue("context"))
    return str(refused.value)


def by_dagster(urls: Sequence[str], arguments: dict[str, Any], request: Any) -> str:
    manifest = arguments.pop("manifest", None)
    jobs = {
        f"asset_{number}": TransferJob(Location(SOURCE), Location(url), **arguments)
        for number, url in enumerate(urls)
    }

    @skyplane_assets(jobs=jobs)
    def models(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:  # noqa: F811
        yield from skyplane.run(context=context, one_fleet=True, manifest=manifest)

    result = request.getfixturevalue("lab").materialize(models)
    (event,) = [one for one in result.all_events if one.event_type_value == "STEP_FAILURE"]
    failure = event.step_failure_data.user_failure_data
    assert failure.metadata["skyplane/error"].value["is_permanent"]
    return str(failure.description)


def by_command(urls: Sequence[str], arguments: dict[str, Any], request: Any) -> str:
    options = {"move": ["--move"], "manifest": ["--manifest", "/m.csv"]}
    capsys = request.getfixturevalue("capsys")
    first, *further = urls
    words = ["cp", "-r", SOURCE, first, *(word for url in further for word in ("--also", url))]
    code = main([*words, *(word for name in arguments for word in options[name])])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert all(options[name][0] in said.err for name in arguments)
    assert len(said.err.strip().splitlines()) == 1
    return str(said.err)


@pytest.mark.parametrize(
    "told", [by_client, by_operator, by_dagster, by_command], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("case", REFUSED)
def test_every_face_refuses_in_one_line(
    case: str, told: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    urls, arguments, clue = REFUSED[case]
    line = told(urls, dict(arguments), request)
    assert clue in line
    assert "\n" not in line.strip()


@pytest.mark.parametrize(
    ("more", "clue"),
    [
        ({"destinations": "{{ var.value.x }}"}, "is a list of URLs, not '{{ var.value.x }}'"),
        ({"destinations": "s3://a/"}, "is a list of URLs, not 's3://a/'"),
        ({"destinations": []}, r"is a list of URLs, not \[\]"),
        ({"destinations": [7]}, r"destinations\[0\] must be"),
        ({"destination_url": "s3://x/"}, "destination_url"),
        ({"destination_region": "aws:us-east-1"}, "destination_region"),
        ({"fleet": {"key": "k"}}, "fleet"),
        ({"job": {"source": {}}}, "job"),
        ({"deferrable": True}, "deferrable"),
    ],
    ids=lambda one: str(one)[:50],
)
def test_the_operator_refuses_when_the_file_is_read(more: dict[str, Any], clue: str) -> None:
    given = {"source_url": SOURCE, "destinations": PAIR, **more}
    with pytest.raises(ConfigurationInvalid, match=clue) as refused:
        SkyplaneTransferOperator(task_id="t", **given)
    assert "destinations" in str(refused.value)
