"""Each first page is followed to the letter, in a fresh environment of its own.

S3 is a server of this machine. What needs an account or a registry of images is left out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.docs.pages import Block, Page, all_pages
from tests.docs.places import Places
from tests.e2e.held_store import wait_for
from tests.e2e_dagster.graphql import GraphQl
from tests.faults import moto_server
from tests.matrix.lines import LINES, Line
from tests.packaging.reader import Reader

README: Final = Page("README.md")
AIRFLOW: Final = Page("docs/getting-started/airflow.md")
INSTANCES: Final = Page("docs/getting-started/aws-instances.md")
COMMAND_LINE: Final = Page("docs/getting-started/command-line.md")
DAGSTER: Final = Page("docs/getting-started/dagster.md")

#: Commands of the page of instances that need an account; `test_first_run.py` has its copy.
NEEDS_ACCOUNT: Final = re.compile(
    r"(aws|skyplane-orch cp|AIRFLOW__CORE__TEST_CONNECTION=Enabled) .*\n"
)
BESIDE: Final = "beside"

_OURS: Final = re.compile(r"""['"]?(\.|skyplane-orchestration|\$\(ls dist/\*\.whl\))\[""")
_KEEPS: Final = ('"apache-airflow==$(airflow version)"', '"$(pip freeze | grep ^dagster==)"')
MakeReader = Callable[..., Reader]


@pytest.fixture
def make_reader(repository: Path, tracked_files: list[str], tmp_path: Path) -> MakeReader:
    checkout = tmp_path / "checkout"
    for name in tracked_files:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / name, checkout / name)

    def make(**variables: str) -> Reader:
        return Reader(checkout, tmp_path / "home", variables)

    return make


@pytest.fixture
def s3_endpoint() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


@pytest.fixture
def reader(make_reader: MakeReader, s3_endpoint: str) -> Reader:
    return make_reader(
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY="testing",
        AWS_ENDPOINT_URL_S3=s3_endpoint,
    )


def blocks_of(page: Page, *, but: str = BESIDE) -> list[Block]:
    return [block for block in page.blocks() if block.test != but]


# ---------------------------------------------------------------- every command


def installs() -> list[Any]:
    """Each block of each page that installs with pip, and the line."""
    return [
        pytest.param(block, line, id=f"{page.path}: {line}")
        for page in all_pages()
        for block in page.blocks()
        if block.language == "bash"
        for line in block.text.splitlines()
        if re.search(r"\bpip install\b", line)
    ]


@pytest.mark.parametrize(("block", "line"), installs())
def test_no_command_replaces_an_orchestrator_that_is_there(block: Block, line: str) -> None:
    if not _OURS.search(line):
        return
    before = block.text[: block.text.index(line)]
    has_own_environment = re.search(r"^ *python3 -m venv ", before, re.M) is not None
    if not has_own_environment and not re.search(r"\[[^]]*(airflow|dagster)", line):
        return  # Nothing of it needs an orchestrator.
    assert has_own_environment or any(word in line for word in _KEEPS)
    named = re.findall(r"-c (\S+)", line)
    assert len(named) == has_own_environment, "only a new environment takes pins"
    assert not {"constraints/development.txt"}.intersection(named)


@pytest.mark.long
@pytest.mark.parametrize(
    "line", [line for _, line in (one.values for one in installs()) if " -c " in line]
)
def test_every_file_of_constraints_fits_its_command(line: str, make_reader: MakeReader) -> None:
    reader = make_reader()
    reader.type("python3 -m venv --without-pip ~/skyplane")
    told = reader.type(line.replace("pip install", "pip install --dry-run", 1) + " 2>&1")
    assert "skyplane-orchestration" in told


# ---------------------------------------------------------------- the pages


@pytest.mark.long
@pytest.mark.timeout(600)
def test_airflow(reader: Reader, s3_endpoint: str) -> None:
    blocks = blocks_of(AIRFLOW)
    places = Places(s3_endpoint, next(block.text for block in blocks if block.saved_as))
    reader.follow(blocks, saved_in=reader.dags)
    places.assert_copied()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_command_line(reader: Reader, s3_endpoint: str) -> None:
    blocks = blocks_of(COMMAND_LINE)
    places = Places(s3_endpoint, "".join(block.text for block in blocks if "s3://" in block.text))
    assert "nothing to copy" in reader.follow(blocks)
    assert (reader.checkout / "to" / "reports" / "world.txt").read_text() == "world\n"
    places.assert_copied()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_readme(make_reader: MakeReader) -> None:
    reader = make_reader()
    (install,) = (block for block in README.blocks() if block.test == "install")
    reader.follow([install])
    assert list((reader.checkout / "dist").glob("skyplane_orchestration-*.whl"))
    assert reader.type("skyplane-orch --version").startswith("skyplane-orch ")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_dagster(reader: Reader, s3_endpoint: str) -> None:
    """Its assets are materialized from the web server; then a project of dg checks."""
    blocks = blocks_of(DAGSTER)
    (serve,) = (n for n, block in enumerate(blocks) if block.text.startswith("dagster dev "))
    reader.follow(blocks[:serve])
    places = Places(s3_endpoint, next(block.text for block in blocks if block.saved_as))
    with reader.running(blocks[serve].text, re.compile(r"on (http://127\.0\.0\.1:\d+)")) as said:
        graphql = GraphQl(said[1])
        repository = wait_for(graphql.repository, "the code location")
        assert repository is not None
        run_id = graphql.launch(repository, "images_paris", "catalogue")
        wait_for(lambda: graphql.run(run_id).is_over, "the end of the run")
        run = graphql.run(run_id)
    assert (run.status, run.succeeded[-1]) == ("SUCCESS", "catalogue")
    places.assert_copied()
    told = reader.follow(blocks[serve + 1 :])
    assert "All definitions loaded successfully" in told


# ---------------------------------------------------------------- beside what is there


def line_named(name: str) -> Line:
    return next(line for line in LINES if line.name == name)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "page", "there"),
    [
        ("airflow-2.11", AIRFLOW, ("apache-airflow",)),
        ("airflow-3.1", AIRFLOW, ("apache-airflow",)),
        ("dagster-1.11", DAGSTER, ("dagster", "dagster-webserver")),
    ],
)
def test_what_is_there_stays(
    name: str, page: Page, there: tuple[str, ...], make_reader: MakeReader
) -> None:
    """With the real pip. Then the page of instances is followed on one Airflow."""
    reader = make_reader()
    reader.type(f"python3 -m venv ~/skyplane\n. ~/skyplane/bin/activate\n"
                f"pip install -c {line_named(name).constraints} {' '.join(there)}")  # fmt: skip
    before = reader.packages()
    (install,) = page.tested(BESIDE)
    reader.type(install, quick_pip=False)
    after = reader.packages()
    assert before <= after
    assert any(package.startswith("skyplane-orchestration") for package in after)
    if name == "airflow-3.1":
        follow_instances(reader)


def follow_instances(reader: Reader) -> None:
    reader.type("airflow db migrate")
    typed = [
        Block(block.language, NEEDS_ACCOUNT.sub("", block.text), block.test, block.saved_as)
        for block in INSTANCES.blocks()
    ]
    dag = next(block for block in typed if block.test == "instances_dag")
    reader.follow(block for block in typed if block is not dag)
    reader.follow([dag], saved_in=reader.dags)
    policy = json.loads((reader.checkout / "policy.json").read_text())
    assert "DEPLOYMENT" not in json.dumps(policy)
    (connection,) = json.loads(reader.type("airflow connections get skyplane_default -o json"))
    assert "aws:us-east-1" in json.dumps(connection["extra_dejson"])
    reader.type(f"python {reader.dags / dag.saved_as}")
