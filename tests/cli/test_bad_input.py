"""What the planning verbs refuse: one clear line on stderr, exit 2, nothing on stdout.

With --json the same line, and one object on stdout that says it again.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.typical_mistakes import MISTAKES

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
ENDS = f"{SRC} {DST}"
ALL = ("plan", "frontier", "compare")
WITH_GOAL = ("plan", "compare")
WRITING = ("cp -r", "sync", "transfer -r --fleet {missing}")
COPYING = ("cp -r", "sync", "cp -r --dry-run")
SYNCING = ("sync", "sync --dry-run")
BELOW = ("cp -r", "sync", "verify -r", "cp -r --dry-run")
MOVING = ("cp -r", "sync", "verify", "cp -r --src-region gcp:us-east1 --dst-region gcp:us-east1")

#: (verbs, arguments, what the line must say); {name} is one of the places below.
TABLE: list[tuple[tuple[str, ...], str, str]] = [
    # ---- names
    (ALL, f"aws:eu-west-99 {DST}", "did you mean aws:eu-west-"),
    (ALL, f"{SRC} aws:eu-wst-3", "aws:eu-west-3"),
    (ALL, f"{SRC} paris", "'paris' is a location"),
    (ALL, f"{SRC} aws:", "region name"),
    (ALL, f"{SRC} oci:eu-frankfurt-1", "unknown cloud 'oci'"),
    (ALL, SRC, "DST"),
    (ALL, "", "SRC"),
    (("frontier", "compare"), f"{ENDS} {SRC}", "unrecognized arguments"),
    (ALL, f"{ENDS} --grid nowhere", "no grid 'nowhere'"),
    (ALL, f"{ENDS} --grid {{missing}}", "no grid"),
    (ALL, f"{ENDS} --grid {{empty}}", "the grid has no region"),
    (ALL, f"{ENDS} --grid {{broken}}", "throughput.csv row 2"),
    (ALL, f"{ENDS} --grid {{unpriced}}", "price"),
    (ALL, f"{ENDS} --grid {{unclassed}}", "price_class"),
    (ALL, f"{ENDS} --price-overrides {{missing}}", "missing"),
    (ALL, f"{ENDS} --instance-type aws=huge", "it has: "),
    (ALL, f"{ENDS} --instance-type aws", "NAME=VALUE"),
    (ALL, f"{ENDS} --instance-type oci=big", "oci"),
    (ALL, f"{ENDS} --exclude-regions aws:us-est-1", "aws:us-east-1"),
    (ALL, f"{ENDS} --allow-regions mars:*", "--allow-regions"),
    (ALL, f"{ENDS} --allow mars:*", "--allow-regions"),
    (ALL, f"{ENDS} --exclude-regions {SRC}", "a transfer cannot avoid its ends"),
    (ALL, f"{ENDS} --exclude azure:*", "regions that relay have --exclude-regions"),
    (ALL, f"{ENDS} --exclude-regions ,", "',' names nothing"),
    (("cp -r",), "{tree} {tmp}/new --exclude-regions *.tmp", "to skip objects, use --exclude)"),
    (ALL, f"{ENDS} --frobnicate", "--frobnicate"),
    (ALL, f"{ENDS} --min-throughput-gbps 1 --deadline-s 1", "not allowed with"),
    (ALL, f"{ENDS} --min-through 1", "unrecognized arguments"),
    (("cp",), "{tree}/a {tmp}/new --verify --no-verify", "not allowed with"),
    (("cp",), "{tree}/a {tmp}/new --conflict overwrite", "'replace-if-newer'"),
    # ---- places
    (ALL, f"{SRC} s3://bucket/", "two locations"),
    (ALL, f"{{tmp}} {DST}", "two locations"),
    (ALL, f"{ENDS} --src-region {SRC}", "--src-region"),
    (ALL, f"{ENDS} --dst-endpoint http://127.0.0.1:1", "--dst-endpoint"),
    (ALL, f"ftp://host/x s3://b/ --dst-region {DST}", "scheme"),
    (("plan", "compare"), f"{{empty}} s3://b/x/ --dst-region {DST}", "no files below {empty}"),
    *[
        (MOVING, f"{ends}", clue)
        for word, clue in (
            ("a:dst", "write ./a:dst for a file"),
            ("-", "(stdin or stdout) is not supported"),
            ("s3:/src", "write s3://src"),
        )
        for ends in (f"{{empty}} {word}", f"{word} {{empty}}")
    ],
    # ---- what is not there, with files
    (BELOW, "{tree} {tmp}/new --include *.parquet", "the filters leave out all 2 objects under"),
    (BELOW, "{tree} {tmp}/new --exclude *", "its * also matches slashes"),
    (("cp", "verify"), "{tree}/a {tmp}/new --include b", "the filters leave out the one object"),
    (("cp", "verify"), "{missing} {tmp}/new", "there is no file {missing}; check its name"),
    (("cp", "verify"), "{missing}/ {tmp}/new", "there is no file {missing}/; check its name"),
    (("cp", "verify"), "{tree}/a/ {tmp}/new", "there is no file {tree}/a/; check its name"),
    (("cp", "verify"), "{tree} {tmp}/new", "{tree} is a folder; to copy the files in it, copy rec"),
    (BELOW, "{missing} {tmp}/new", "there is no folder {missing}"),
    (BELOW, "{tree}/a {tmp}/new", "{tree}/a is a file, not a folder; copy it without -r"),
    (COPYING, "{tree} {tmp}/new --files-from {tree}/a --include b", "leave out the only object"),
    (BELOW, "{empty} {tmp}/new", "no files below {empty}; --allow-empty makes that a success"),
    (("cp -r", "sync"), "{tree} {tree}", "{tree} and destination {tree} are the same place"),
    (("cp -r", "sync"), "{tree} {tree}/x", "{tree}/x lies in the source {tree}, so"),
    (("cp",), "{tree}/a {tree}/a", "the same object, {tree}/a; choose another destination"),
    (("cp -r",), "{tree} {tree}/a/x", "{tree}/a is not a directory"),
    (("cp",), "{tree}/a/x {tmp}/new", "a/x"),
    (("cp -r",), "{tree} s3:///x", "names no bucket"),
    (
        ("plan",),
        f"s3://b/ s3://c/ --src-region aws:us-est-1 --dst-region {DST} --volume-gb 1",
        "aws:us-east-1",
    ),
    (("cp -r",), "s3://b/ {tmp}/new --src-region paris", "aws:us-east-1"),
    (("cp -r",), "s3://b/ {tmp}/new --src-credentials env:NONE", "NONE_ACCESS"),
    (("cp -r",), "s3://b/ {tmp}/new --src-credentials nobody", "profile:"),
    (("cp -r",), "s3://b/ {tmp}/new --src-option colour=red", "colour"),
    (("cp -r",), "{tree} {tmp}/new --lease-s 0", "--lease-s"),
    # ---- filters
    *[
        (COPYING, f"{{tree}} {{tmp}}/new {option}-size {bad}", f"{option}-size must be a number w")
        for option in ("--min", "--max")
        for bad in ("10", "10KB", "many", "1e3")
    ],
    (COPYING, "{tree} {tmp}/new --min-size -1K", "--min-size"),
    (COPYING, "{tree} {tmp}/new --min-size 2K --max-size 1K", "no object has --min-size 2K or m"),
    *[
        (COPYING, f"{{tree}} {{tmp}}/new {option}-than {bad}", f"{option}-than must be a duration")
        for option in ("--newer", "--older")
        for bad in ("10", "1y", "2026-01-31T06:00:00", "yesterday")
    ],
    (COPYING, "{tree} {tmp}/new --newer-than 1h --older-than 2h", "no object is --newer-than 1h"),
    (COPYING, "{tree} {tmp}/new --min-size 1G", "the filters leave out every object under"),
    (
        COPYING,
        "{tree} {tmp}/new --files-from {missing}",
        "argument --files-from: '{missing}' canno",
    ),
    (COPYING, "{tree} {tmp}/new --files-from {tree}", "Is a directory"),
    (COPYING, "{tree} {tmp}/new --files-from /dev/null", "'/dev/null' has no key"),
    (("cp",), "{tree}/a {tmp}/new --files-from {tree}/a", "--files-from names keys below a prefix"),
    # ---- names of the Python API
    (("cp -r", "sync"), "{tree} {tmp}/new --chunk-mib 1", ": --chunk-mib must be from 5 to 512"),
    (WITH_GOAL, f"{ENDS} --max-cost-usd 5", "give --volume-gb, or list"),
    (WITH_GOAL, f"{ENDS} --max-job-usd 5", ": --max-job-usd needs a volume: give --volume-gb"),
    # ---- options of other tools, and of other verbs
    (("cp -r",), "{tree} {tmp}/new --delete", "use skyplane-orch sync --delete"),
    # ---- bandwidth
    *[
        (COPYING, f"{{tree}} {{tmp}}/new --bwlimit {bad}", "--bwlimit must be a number with one")
        for bad in ("10", "10MB", "off", "10M:1M")
    ],
    *[
        (COPYING, f"{{tree}} {{tmp}}/new --bwlimit {bad}", "--bwlimit in bytes per second must be")
        for bad in ("0K", "1023B")
    ],
    (COPYING, "{tree} {tmp}/new --on-illegal-key rename", "'escape'"),
    (COPYING, "{tree} {tmp}/new --on-archived-object thaw", "'read'"),
    (COPYING, "{tree} {tmp}/new --processes-per-instance 65", "--processes-per-instance must be a"),
    # ---- deletes
    (("sync",), "{tree} {tmp}/new --max-delete 5", "--max-delete needs --delete"),
    (("sync",), "{tree} {tmp}/new --allow-unmatched-patterns", "patterns needs --delete"),
    *[
        (SYNCING, f"{{tree}} {{tmp}}/new --delete --exclude {bad}", "no key can match the pattern")
        for bad in ("//x", "[b-a]", "x/[b-a]/")
    ],
    *[
        (
            SYNCING,
            f"{{tree}} {{tmp}}/new --delete --exclude {bad}",
            "write '" + bad + "/**', or set -",
        )
        for bad in ("sub", "/sub", "s?b")
    ],
    *[
        (("sync",), f"{{tree}} {{tmp}}/new --delete --max-delete {bad}", "--max-delete must be a n")
        for bad in ("101%", "many", "1.5", "5K")
    ],
    (("sync",), "{tree}/sub {tree} --delete", "a sync with deletes out of"),
    (("sync",), "{tree}/sub {broken} --delete", "1 object at 'file://{broken}' would be deleted"),
    (("sync",), "{tree} {broken} --delete --max-delete 0", "--max-delete 0 allows 0; nothing was"),
    (
        ("sync",),
        "{tree} {tmp}/new --delete --files-from {broken}/throughput.csv",
        "out --files-from: k",
    ),
    (("sync",), "{tree} {tmp}/new --delete --on-illegal-key escape", "leave out --on-illegal-key"),
    (("sync",), "{tree} {tmp}/new --delete --no-verify", "only verified copies allow deletes"),
    (("cp",), "{tree} {tmp}/new -R", "unrecognized arguments: -R; did you mean -r? (see"),
    (("cp -r",), "{tree} {tmp}/new --dryrun", "use --dry-run (see skyplane-orch cp"),
    (
        ("cp -r", "sync"),
        "{tree} {tmp}/new --region aws:us-east-1",
        "use --src-region or --dst-region",
    ),
    (("cp", "verify"), "{tree} {tmp}/new more", "unrecognized arguments: more"),
    (("verify -r",), "{tree} {tree} --parallel 0", "--parallel"),
    (("grid show",), "shipped --colour", "(see skyplane-orch grid show --help)"),
    (
        ("cp -r", "sync"),
        "{tree} {tmp}/new --chunk-mib 8MB",
        "--chunk-mib: invalid int value: '8MB'",
    ),
    (("cp -r",), "{tree} s3://b/ --dst-endpoint host:9000", "such as http://127.0.0.1:9000"),
    # ---- numbers
    *[
        (ALL, f"{ENDS} {option}={bad}", option)
        for option in ("--volume-gb", "--objects", "--safety-margin")
        for bad in ("-1", "nan", "inf", "")
    ],
    *[(ALL, f"{ENDS} --vcpu-quota {bad}", "--vcpu-quota") for bad in ("aws=0", "aws", "oci=4")],
    (ALL, f"{ENDS} --volume-gb 0", "--volume-gb"),
    (ALL, f"{ENDS} --instance-limit 1.5", "--instance-limit"),
    *[(WITH_GOAL, f"{ENDS} --deadline-s={bad}", "--deadline-s") for bad in ("0", "nan", "")],
    *[
        (("frontier",), f"{ENDS} --points {bad}", "--points")
        for bad in ("1", "201", "-3", "x", "1e3")
    ],
    # ---- what cannot be had
    (WITH_GOAL, f"{ENDS} --min-throughput-gbps 1e6 --relays 0", "the most is"),
    (WITH_GOAL, f"{ENDS} --min-throughput-gbps 1e6 --relays 0", "8 instances"),
    (WITH_GOAL, f"{ENDS} --max-usd-per-gb 1e-6", "the cheapest costs"),
    (WITH_GOAL, f"{ENDS} --max-cost-usd 1e-6 --volume-gb 100", "cost"),
    (WITH_GOAL, f"{ENDS} --max-cost-usd 5", "needs a volume"),
    (WITH_GOAL, f"{ENDS} --deadline-s 600", "needs a volume"),
    (WITH_GOAL, f"{ENDS} --deadline-s 20 --volume-gb 1", "the earliest deadline is"),
    (WITH_GOAL, f"{ENDS} --deadline-s 200 --volume-gb 1e6 --relays 0", "the earliest deadline is"),
    (WITH_GOAL, f"{ENDS} --max-job-usd 5", "needs a volume"),
    (WITH_GOAL, f"{ENDS} --max-job-usd 1e-3 --volume-gb 100 --relays 0", "the cheapest costs"),
    (("plan",), f"{ENDS} --vcpu-quota aws=1 --relays 0", "raise the vCPU quota"),
    (WITH_GOAL, f"{ENDS} --exactly", "--exactly needs --min-throughput-gbps"),
    (WITH_GOAL, f"{ENDS} --max-usd-per-gb 1 --deadline-s 5", "not allowed with"),
    (("frontier",), f"{ENDS} --max-usd-per-gb 1e-6", "the cheapest costs"),
    (("frontier",), f"{ENDS} --max-usd-per-gb=-1", "--max-usd-per-gb"),
    # ---- where to write
    (("plan", "frontier"), f"{ENDS} --plot {{missing}}/map.svg", "missing/map.svg"),
    (("plan", "frontier"), f"{ENDS} --plot {{tmp}}", "cannot be written"),
    (("plan",), f"{ENDS} --plot /proc/map.svg", "cannot be written"),
    (("plan", "frontier"), f"{ENDS} --plot", "--plot"),
    *[
        (("plan", "frontier"), f"{ENDS} --plot {{tmp}}/map{suffix}", f"as {suffix.lower()}; use a")
        for suffix in (".png", ".pdf", ".html", ".JPG", ".svgz")
    ],
    *[
        (WRITING, f"{{tree}} {{tmp}}/new --manifest {{tmp}}/m{suffix}", ".parquet, .jsonl, .ndjson")
        for suffix in (".json", ".txt", ".parquet.gz", ".XLSX")
    ],
    (("resume",), "word --manifest {tmp}/m.json", ".parquet, .jsonl, .ndjson"),
    (WRITING, "{tree} {tmp}/new --manifest {tmp}/", "names no file"),
    (WRITING, "{tree} {tmp}/new --manifest s3://bucket", "names no file"),
    (("provision",), "{missing} -o {tmp}/fleet.yaml", "as .yaml; use a name that ends in .json"),
    (
        ("cp -r --dry-run", "sync --dry-run"),
        "{tree} {tmp}/new --manifest {tmp}/m.csv",
        "--manifest lists what was copied, and --dry-run copies nothing; use --json",
    ),
    # ---- options of the other end, or of a bucket
    *[
        (
            COPYING,
            f"{{tree}} {{tmp}}/new --{end}-{option}",
            f"--{end}-{option.split()[0]} has no effect",
        )
        for end in ("src", "dst")
        for option in ("endpoint http://127.0.0.1:1", "credentials profile:p")
    ],
    *[
        (COPYING, f"s3://b/ {{tmp}}/new --src-option {option}", "has no effect for 's3://b/'")
        for option in ("storage-class=keep", "sse=aws:kms", "acl=private", "sse-kms-key-id=k")
    ],
    (COPYING, "{tree} s3://b/ --dst-option tags=keep", "--dst-option tags has no effect"),
    # ---- grids
    (("grid",), "", "ACTION"),
    (("grid",), "burn", "burn"),
    (("grid list",), "{missing}", "no grid"),
    (("grid show",), "", "NAME|DIR"),
    (("grid show",), "nowhere", "no grid 'nowhere'"),
    (("grid show",), "shipped --price-overrides none.csv", "no file of price overrides"),
    (("grid show",), "{broken}", "throughput.csv row 2"),
    (("grid show",), f"shipped {SRC}", "two ends"),
    (("grid show",), f"shipped {SRC} aws:eu-wst-3", "aws:eu-west-3"),
    (("grid show", "grid list"), "{empty}", "the grid has no region"),
    (("grid validate",), "{missing}", "no grid"),
    (("grid import",), "{missing}", "--out"),
    (("grid import",), "{missing} --out {tmp}/new", "missing"),
    (("grid import",), "{empty} --out {tmp}/new", "empty"),
]

ROWS = [(f"{verb} {arguments}", clue) for verbs, arguments, clue in TABLE for verb in verbs]
ROWS += MISTAKES


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Directories to be named in a command; a refused command leaves them as they are."""
    tmp_path = tmp_path_factory.mktemp("places")
    for name in ("empty", "broken", "unpriced", "unclassed"):
        (tmp_path / name).mkdir()
    pair = f"src,dst,gbps\n{SRC},{DST},%s\n"
    (tmp_path / "broken" / "throughput.csv").write_text(pair % "fast")
    (tmp_path / "unpriced" / "throughput.csv").write_text(pair % 3)
    (tmp_path / "unpriced" / "price_rules.yaml").write_text("clouds: {gcp: {}}\n")
    (tmp_path / "unclassed" / "regions.csv").write_text(
        f"region,price_class\n{SRC},NOSUCH\n{DST},NOSUCH\n"
    )
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (tmp_path / "tree" / name).write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    yield {"tmp": str(tmp_path), **{path.name: str(path) for path in tmp_path.iterdir()}} | {
        "missing": str(tmp_path / "missing")
    }
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("command", "clue"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS])
def test_bad_input_is_refused_in_one_line(
    places: dict[str, str], capsys: pytest.CaptureFixture[str], command: str, clue: str
) -> None:
    words = [word.format(**places) for word in command.split()]
    assert main([*words, "--json"]) == 2
    output = capsys.readouterr()
    error = json.loads(output.out)["error"]
    assert error["is_permanent"] is True
    assert output.err == f"skyplane-orch: {' '.join(error['message'].split())}\n"
    assert clue.format(**places) in output.err


def test_a_picture_without_matplotlib_is_refused_before_the_search(
    places: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    # No plan has this rate: the search would refuse it.
    impossible = ["--min-throughput-gbps", "1e6", "--relays", "0"]
    plot = ("--plot", f"{places['tmp']}/chart.svg")
    assert main(["frontier", *ENDS.split(), *impossible, *plot]) == 2
    output = capsys.readouterr()
    assert output.err == (
        "skyplane-orch: a chart needs the extra 'plots':"
        " pip install 'skyplane-orchestration[plots]'\n"
    )


#: (the option, what cannot be had, the words before what can, more options, a bit too much).
NAMED = [
    ("--min-throughput-gbps", "1e6", "the most is ", "", 1.01),
    ("--max-usd-per-gb", "1e-6", "the cheapest costs ", "", 0.99),
    ("--max-cost-usd", "1e-6", "the cheapest costs ", "--volume-gb 100 --objects 1000", 0.99),
    ("--deadline-s", "20", "the earliest deadline is ", "--volume-gb 500", 0.97),
]


@pytest.mark.parametrize(("option", "bad", "words", "more", "too_much"), NAMED)
def test_the_limit_in_the_message_is_feasible_and_tight(
    capsys: pytest.CaptureFixture[str],
    option: str,
    bad: str,
    words: str,
    more: str,
    too_much: float,
) -> None:
    common = ["plan", SRC, DST, "--instance-limit", "2", "--relays", "1", *more.split(), option]
    assert main([*common, bad]) == 2
    named = re.search(rf"{words}([0-9.e+-]*[0-9])", capsys.readouterr().err)
    assert named is not None
    assert main([*common, named[1]]) == 0
    assert main([*common, str(float(named[1]) * too_much)]) == 2
