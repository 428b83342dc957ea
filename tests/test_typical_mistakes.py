"""What people type wrong in their first hour: one line that names what to change, and no traceback.

Each row names the option or argument of the interface that was used. The command exits with 2 and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dagster.components.testing import create_defs_folder_sandbox

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.dagster import SkyplaneTransferComponent, build_skyplane_transfer_asset
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.settings import Settings
from skyplane_orchestration.operators import SkyplanePlanOperator, SkyplaneTransferOperator

#: (command line, what the line must say); {tree} is a folder with two files, {tmp} one above.
COMMAND: list[tuple[str, str]] = [
    # ---- verbs
    ("mv {tree} {tmp}/new", "use skyplane-orch cp --move"),
    ("rm s3://b/x", "use the store's own tool, or skyplane-orch sync --delete"),
    ("copy {tree} {tmp}/new", "use skyplane-orch cp"),
    ("rsync {tree} {tmp}/new", "use skyplane-orch sync"),
    ("lsl {tree}", "use skyplane-orch ls"),
    ("mb s3://new", "buckets are made with the cloud's own tool"),
    ("check {tree} {tmp}/new", "use skyplane-orch verify"),
    ("deprovision", "use skyplane-orch teardown"),
    ("help cp", "use skyplane-orch cp --help"),
    ("-v cp {tree} {tmp}/new", "options come after the verb: skyplane-orch cp ... -v"),
    ("-q sync {tree} {tmp}/new", "options come after the verb: skyplane-orch sync ... -q"),
    ("s3 cp {tree} {tmp}/new", "leave it out: skyplane-orch cp SRC DST"),
    ("cpy {tree} {tmp}/new", "did you mean cp?"),
    ("xyzzy", "it has plan, compare"),
    # ---- options of other tools
    ("cp -r {tree} {tmp}/new --profile prod", "--src-credentials REF"),
    ("cp -r {tree} {tmp}/new --endpoint-url http://h:9000", "--dst-endpoint URL"),
    ("cp -r {tree} {tmp}/new --region eu-west-1", "--src-region or --dst-region"),
    ("cp -r {tree} {tmp}/new --transfers 32", "requests run in parallel without it"),
    ("cp -r {tree} {tmp}/new -P", "progress is shown without it"),
    ("cp -r {tree} {tmp}/new --dryrun", "use --dry-run"),
    ("sync {tree} {tmp}/new -n", "use --dry-run"),
    ("cp -r {tree} {tmp}/new --no-clobber", "use --conflict skip"),
    ("cp -r {tree} {tmp}/new --acl private", "use --dst-option acl=NAME"),
    ("cp -r {tree} {tmp}/new --sse aws:kms", "use --dst-option sse=aws:kms"),
    ("cp -r {tree} {tmp}/new --storage-class GLACIER", "use --dst-option storage-class=NAME"),
    ("cp -r {tree} {tmp}/new --max-age 7d", "use --newer-than TIME"),
    ("cp -r {tree} {tmp}/new --include-pattern *.csv", "use --include GLOB"),
    ("cp -r {tree} {tmp}/new --cap-mbps=100", "use --bwlimit RATE"),
    ("cp -r {tree} {tmp}/new --delete", "use skyplane-orch sync --delete"),
    ("sync {tree} {tmp}/new --delete-excluded", "use skyplane-orch sync --delete"),
    ("cp -r {tree} {tmp}/new --follow-symlinks", "what symbolic links lead to"),
    ("cp -r {tree} {tmp}/new --recursiv", "did you mean --recursive?"),
    # ---- values
    ("cp -r {tree} {tmp}/new --bwlimit 10", "--bwlimit must be a number with one of the units"),
    ("cp -r {tree} {tmp}/new --chunk-mib 1", "--chunk-mib must be from 5 to 512"),
    ("cp -r {tree} {tmp}/new --conflict overwrite", "argument --conflict: invalid choice"),
    ("sync {tree} {tmp}/new --max-delete 5", "--max-delete needs --delete"),
    ("cp -r --move {tree} {tmp}/new --no-verify", "leave out --no-verify"),
    ("cp -r {tree} {tmp}/new --newer-than yesterday", "--newer-than must be a duration"),
    ("cp -r {tree} {tmp}/new --strict-metadata", "leave out --strict-metadata"),
    ("cp -r {tree} {tmp}/new --lease-s 0", "--lease-s must be a number above zero"),
    ("cp -r {tree} {tmp}/new --provisioner aws", "needs --clouds"),
    ("cp -r {tree} {tmp}/new --provisioner ssh", "needs --hosts"),
    # ---- places
    ("cp {tree} {tmp}/new", "copy recursively (-r)"),
    ("cp -r {tree}/a {tmp}/new", "copy it without -r"),
    (
        "cp {tree}/* {tmp}/new",
        "a source is no pattern: give the folder '{tree}/', -r and --include",
    ),
    ("cp -r {tree}/*.csv {tmp}/new", "-r and --include '*.csv'"),
    ("cp {tree}/a {tree}/b {tmp}/new", "it takes SRC and DST only"),
    ("cp {tree}/a", "the following arguments are required: DST"),
    ("cp -r s3:/b/x {tmp}/new", "SRC: 's3:/b/x' is neither"),
    ("cp -r {tree} ftp://b/x", "DST: 'ftp://b/x' has a scheme"),
    ("cp -r {tree} http://minio:9000/b", "DST: 'http://minio:9000/b' is not"),
    ("cp -r {tree} s3://b/x --dst-endpoint minio:9000", "--dst-endpoint: endpoint 'minio:9000'"),
    ("cp -r s3://b/x {tmp}/new --src-region eu-west-1", "--src-region: 'eu-west-1' is not"),
    ("cp -r {tree} {tmp}/new --exclude aws:us-east-1", "use --exclude-regions"),
    ("cp -r {tree} {tmp}/new --src-endpoint http://h:9000", "--src-endpoint has no effect"),
    ("plan aws:us-est-1 aws:eu-west-3", "or aws:us-east-1 or"),
    ("cp -r {tree} s3://b/x --dst-credentials prod", "--dst-credentials must be profile:NAME or"),
    ("cp -r {tree} s3://b/x --dst-option colour=red", "destination: an S3 store has no option"),
    ("cp -r {tree} s3://b/x --header X-Robots:no", "--header cannot set 'X-Robots'; it can set"),
    ("cp -r {tree} s3://b/x --metadata owner", "argument --metadata: 'owner' is not of the form"),
    ("cp -r {tree} {tmp}/new --content-type text/csv", "leave out --content-type"),
    ("cp -r {tree} {tmp}/new --manifest {tmp}/m.xlsx", "argument --manifest"),
    ("sweep --destination ftp://b/x", "--destination: 'ftp://b/x' has a scheme"),
    ("ls", "the following arguments are required: URL"),
    ("ls s3://", "URL: 's3://' names no bucket"),
    ("ls {tree}/none", "there is nothing at"),
    ("resume nonsense", "is not an id in"),
    ("transfer {tree} {tmp}/new --fleet {tmp}/none.json", "none.json' cannot be read"),
]

#: (arguments of an operator beside good ones, what the line must say).
OPERATOR: list[tuple[dict[str, Any], str]] = [
    ({"source_url": "ftp://host/x"}, "source_url: 'ftp://host/x' has a scheme"),
    ({"destination_url": "s3:/b"}, "destination_url: 's3:/b' is neither"),
    ({"source_endpoint": "minio:9000"}, "source_endpoint: endpoint 'minio:9000'"),
    ({"destination_region": "eu-west-1"}, "destination_region: 'eu-west-1' is not a region tag"),
    ({"chunk_mib": 1}, "chunk_mib must be from 5 to 512"),
    ({"bwlimit": "10"}, "bwlimit must be a number with one of the units"),
    ({"conflict": "overwrite"}, "conflict must be one of"),
    ({"max_cost_usd": 1, "deadline_s": 1}, "give one objective: one of min_throughput_gbps"),
    ({"move": True, "verify": "none"}, "leave out verify='none'"),
    ({"delete": True, "recursive": False}, "copy recursively (recursive=True)"),
    ({"include": 5}, "include must be"),
    ({"headers": {"X-Robots": "no"}}, "headers cannot set 'X-Robots'; it can set"),
    ({"object_metadata": {"mtime": "1"}}, "object_metadata cannot set 'mtime'"),
    ({"safety_margin": 2}, "safety_margin must be a number from 0"),
]

#: (attributes of a transfer of the component, what the line must say).
COMPONENT: list[tuple[dict[str, Any], str]] = [
    ({"source_url": "ftp://host/x"}, "source_url: 'ftp://host/x' has a scheme"),
    ({"destination_endpoint": "minio:9000"}, "destination_endpoint: endpoint 'minio:9000'"),
    ({"chunk_mib": 1}, "chunk_mib must be from 5 to 512"),
    ({"content_type": "text/csv", "destination_url": "/x/"}, "leave out content_type"),
    ({"max_delete": "many", "delete": True}, "max_delete must be a number of objects"),
]

#: (fields of a connection, what the line must say).
CONNECTION: list[tuple[dict[str, Any], str]] = [
    ({"provisioner": "aws"}, "needs a clouds_file, or clouds in its place"),
    ({"provisioner": "gce"}, "provisioner"),
    ({"lease_s": 0}, "lease_s must be a number above zero"),
    ({"hosts_file": "/h.yaml"}, "hosts_file is for the provisioner 'ssh' only"),
    ({"clouds": "not json"}, "clouds of the skyplane connection must be a JSON object"),
    ({"regions": "aws"}, "unknown extra fields: regions"),
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    # What the command keeps for its user.
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    for name in ("CONFIG_HOME", "RUNTIME_DIR", "STATE_HOME"):
        (home / name).mkdir(parents=True)
        monkeypatch.setenv(f"XDG_{name}", str(home / name))
    (tmp_path / "tree").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tree" / name).write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    yield {"tmp": str(tmp_path), "tree": f"{tmp_path}/tree"}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("line", "clue"), COMMAND, ids=[line for line, _ in COMMAND])
def test_a_mistake_on_the_command_line(
    places: dict[str, str], capsys: pytest.CaptureFixture[str], line: str, clue: str
) -> None:
    assert main([word.format(**places) for word in line.split()]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert clue.format(**places) in output.err


ENDS = {"source_url": "s3://a/x/", "destination_url": "gs://b/y/"}


def _fail(error: ConfigurationInvalid, clue: str) -> None:
    assert clue in str(error)
    assert "\n" not in str(error)
    assert "--" not in str(error), "an option of the command"


@pytest.mark.parametrize("kind", [SkyplanePlanOperator, SkyplaneTransferOperator])
@pytest.mark.parametrize(("given", "clue"), OPERATOR, ids=[clue for _, clue in OPERATOR])
def test_a_mistake_in_an_operator(
    kind: Callable[..., Any], given: Mapping[str, Any], clue: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        kind(task_id="t", **{**ENDS, **given})
    _fail(caught.value, clue)


@pytest.mark.parametrize(("given", "clue"), COMPONENT, ids=[clue for _, clue in COMPONENT])
def test_a_mistake_in_a_component(given: Mapping[str, Any], clue: str) -> None:
    kind = "skyplane_orchestration.dagster.SkyplaneTransferComponent"
    attributes = {"transfers": [{"name": "orders", **ENDS, **given}]}
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=SkyplaneTransferComponent,
            defs_yaml_contents={"type": kind, "attributes": attributes},
        )
        with (
            pytest.raises(Exception) as caught,
            sandbox.load_component_and_build_defs(defs_path=path),
        ):
            pass
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, ConfigurationInvalid):
        error = error.__cause__ or error.__context__
    assert isinstance(error, ConfigurationInvalid)
    _fail(error, clue)


@pytest.mark.parametrize(
    ("given", "clue"),
    [
        ({"source": "ftp://host/x"}, "source: 'ftp://host/x' has a scheme"),
        ({"destination": "s3:/b"}, "destination: 's3:/b' is neither"),
    ],
)
def test_a_mistake_in_an_asset(given: dict[str, Any], clue: str) -> None:
    ends: dict[str, Any] = {"source": "s3://a/x/", "destination": "gs://b/y/"}
    with pytest.raises(ConfigurationInvalid) as caught:
        build_skyplane_transfer_asset("orders", **{**ends, **given})
    _fail(caught.value, clue)


@pytest.mark.parametrize(("given", "clue"), CONNECTION, ids=[clue for _, clue in CONNECTION])
def test_a_mistake_in_a_connection(given: dict[str, Any], clue: str) -> None:
    class Connection:
        password = None
        extra_dejson = given

    with pytest.raises(ConfigurationInvalid) as caught:
        Settings.from_connection(Connection()).open()
    _fail(caught.value, clue)
