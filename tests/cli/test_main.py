"""The frame around the subcommands: exit codes, streams, start-up, signals."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.gateway.common.test_wording import calls_with_fields

from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import BadInput, as_bad_input
from skyplane_orchestration.cli.main import (
    VERBS,
    SignalHandler,
    _report,
    build_parser,
    main,
    with_option_names,
)
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    NotFound,
    PlanInfeasible,
    SolverFailed,
    TransferFailed,
)
from skyplane_orchestration.model.result import FailedObject


def test_every_subcommand_has_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as left:
            main([verb, "--help"])
        assert left.value.code == 0
        assert f"skyplane-orch {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("skyplane-orch res", {"resume "}),
        ("skyplane-orch cp --dry", {"--dry-run "}),
        (
            "skyplane-orch sync a b --conflict replace-if-",
            {
                "replace-if-newer",
                "replace-if-different",
                "replace-if-checksum-differs",
                "replace-if-size-differs",
            },
        ),
    ],
)
def test_shell_completion_offers_commands_options_and_choices(
    line: str, offered: set[str], tmp_path: Path
) -> None:
    output = tmp_path / "output"
    asked = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(output),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    code = "from skyplane_orchestration.cli.main import entry_point; entry_point()"
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(output.read_text().split("\n")) == offered
    # Without argcomplete there is no offer and no traceback.
    lacking = f"import sys; sys.modules['argcomplete'] = None; {code}"
    done = subprocess.run(
        [sys.executable, "-c", lacking], env=asked, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_nothing_heavy_is_loaded_to_parse_a_command() -> None:
    code = (
        "import sys\n"
        "from skyplane_orchestration.cli.main import build_parser\n"
        "build_parser()\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {"aiohttp", "airflow", "boto3", "botocore", "cryptography", "dagster", "numpy", "rich"}
    assert loaded.isdisjoint(heavy | {"matplotlib", "networkx", "pyarrow", "scipy"})


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["plan", "--colour"], ["teardown"], ["grid"], ["cp", "-x", "a", "b"]]
)
def test_a_command_that_cannot_be_parsed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("skyplane-orch: ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "content", "clue"),
    [
        (["provision"], None, "cannot be read"),
        (["provision"], "{", "not JSON"),
        (["provision"], "[]", "not a JSON object"),
        (["provision"], '{"schema_version": 99}', "schema_version"),
        (["teardown", "--fleet"], "{}", "schema_version"),
        (["status", "--fleet"], '{"schema_version": 1}', "fleet"),
        (["transfer", "s3://a/", "s3://b/", "--fleet"], "no", "not JSON"),
    ],
)
def test_an_invalid_document_is_bad_input(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verb: list[str],
    content: str | None,
    clue: str,
) -> None:
    file = tmp_path / "document.json"
    if content is not None:
        file.write_text(content)
    assert main([*verb, str(file)]) == 2
    output = capsys.readouterr()
    assert clue in output.err
    assert output.err.count("\n") == 1


def test_a_fleet_key_is_hexadecimal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teardown", "--fleet-key", "../../etc"]) == 2
    assert "hex" in capsys.readouterr().err


def test_a_teardown_of_an_unknown_fleet_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["teardown", "--fleet-key", "00ff", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "fleet": "00ff",
        "provisioner": "local",
        "stopped": [],
    }
    assert main(["teardown", "--fleet-key", "00ff"]) == 0
    said = capsys.readouterr().out
    assert said == "fleet 00ff: 0 gateways ended (nothing ran at --provisioner local)\n"


def test_a_sweep_without_fleets_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--deployment", "staging", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "schema_version": 1,
        "deployment": "staging",
        "dry_run": False,
        "orphans": [],
        "kept": [],
        "destinations": [],
        "left": [],
    }
    assert main(["sweep", "--older-than-s", "-1"]) == 2


def test_the_deployment_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPLANE_DEPLOYMENT", "prod-eu")
    assert build_parser().parse_args(["sweep"]).deployment == "prod-eu"
    assert build_parser().parse_args(["sweep", "--deployment", "x"]).deployment == "x"


def test_a_solver_failure_is_not_bad_input() -> None:
    with pytest.raises(BadInput), as_bad_input():
        raise NotFound("no bucket")
    with pytest.raises(BadInput), as_bad_input():
        raise PlanInfeasible("no plan")
    with pytest.raises(SolverFailed), as_bad_input():
        raise SolverFailed("out of time")
    with pytest.raises(NotFound), as_bad_input(ConfigurationInvalid):
        raise NotFound("after something was built")


def test_what_a_library_in_c_prints_is_not_among_the_results() -> None:
    """The solver has a debug line that no option turns off."""
    code = (
        "import ctypes, sys\n"
        "from skyplane_orchestration.cli import main\n"
        "run = main.main\n"
        "def chatty(arguments):\n"
        "    library = ctypes.CDLL(None)\n"
        "    library.puts(b'HighsMipSolverData::run();')\n"
        "    library.fflush(None)\n"
        "    return run(arguments)\n"
        "main.main = chatty\n"
        "sys.argv[1:] = ['grid', 'show', 'shipped', '--json']\n"
        "main.entry_point()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["name"]
    assert done.stderr == ""


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m skyplane_orchestration.cli grid show shipped --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.parametrize("verb", [["grid", "list"], ["grid", "list", "--json"]])
@pytest.mark.parametrize(
    ("stream", "why"), [(">&-", "is closed"), (">/dev/full", os.strerror(errno.ENOSPC))]
)
def test_output_that_cannot_be_written_is_one_error_line(
    verb: list[str], stream: str, why: str
) -> None:
    if stream == ">/dev/full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    command = f"{sys.executable} -m skyplane_orchestration.cli {' '.join(verb)} {stream}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("skyplane-orch: cannot write the output")
    assert line.endswith(why)


def test_an_error_without_stderr_still_has_its_exit_code() -> None:
    command = f"{sys.executable} -m skyplane_orchestration.cli grid show nowhere 2>&-"
    assert subprocess.run(command, shell=True, capture_output=True, check=False).returncode == 2


def test_signals_interrupt_then_warn_then_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with SignalHandler() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert "still cleaning up" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.count == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalHandler():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_failed_transfer_names_its_first_failed_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A long reason is not cut, a key says what it says, and what is not shown is counted."""
    reason = "no room " * 40 + "end"
    failures = tuple(
        FailedObject(f"s3://a/{n}", f"s3://b/{n}\x1b", "store-error", reason, 1) for n in range(12)
    )
    result = SimpleNamespace(resume_handle="", failures=failures, failed=12)
    error = TransferFailed("12 of 12 objects failed", result=result)
    assert _report(error, Console(is_json=False, is_quiet=True), 1, None) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("skyplane-orch: 12 of 12 objects failed\n")
    assert " ".join(said.err.split()).count("no room end") == 10
    assert "s3://b/9\\x1b" in said.err
    assert "s3://b/10" not in said.err
    assert said.err.endswith("... and 2 more (--manifest PATH lists all)\n")


@pytest.mark.parametrize("verb", [("sync",), ("cp", "-r", "--conflict", "skip")])
def test_a_job_with_nothing_to_do_loads_no_planner_and_no_gateway(
    verb: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("src", "dst"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
        os.utime(tmp_path / name / "a", (0, 0))
    code = (
        "import sys\n"
        "from skyplane_orchestration.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, *sorted(sys.modules))"
    )
    arguments = [*verb, f"{tmp_path}/src/", f"{tmp_path}/dst/", "--run-root", f"{tmp_path}/run"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    said, modules = done.stdout.splitlines()
    assert said.startswith("nothing to copy: 1 object unchanged")
    assert modules.split()[0] == "0"
    packages = {name.split(".")[0] for name in modules.split()}
    assert packages.isdisjoint({"aiohttp", "awscrt", "botocore", "cryptography", "numpy", "rich"})
    assert "skyplane_orchestration.planner" not in modules.split()


def test_the_exit_collects_no_loaded_modules() -> None:
    code = (
        "import atexit, gc\n"
        "from skyplane_orchestration.cli.main import entry_point\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "entry_point()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "no-such-command"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "True\n")


def test_one_command_is_parsed_as_all_are() -> None:
    arguments = ["cp", "a", "b", "--dry-run", "--max-relays", "2"]
    one, all_ = build_parser("cp"), build_parser()
    found, also = (vars(each.parse_args(arguments[:4])) for each in (one, all_))
    assert found.pop("parser").prog == also.pop("parser").prog
    assert found == also
    refusals = []
    for parser in (one, all_):
        with pytest.raises(ConfigurationInvalid) as refusal:
            parser.parse_args(arguments)
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize("error", [RuntimeError("odd"), RecursionError("deep"), KeyError("x")])
@pytest.mark.parametrize("verb", ["sweep", "status --fleet f", "verify a b", "doctor", "teardown"])
def test_an_unexpected_error_is_no_traceback(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    verb: str,
) -> None:
    def fail(*_: object) -> int:
        raise error

    name = verb.split()[0]
    module = f"skyplane_orchestration.cli.commands.{name}"
    monkeypatch.setattr(f"{module}.run", fail)
    words = [*verb.split(), *(["--fleet", "f"] if name == "teardown" else []), "--json"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "internal-error"
    assert type(error).__name__ in err
    assert len(err.splitlines()) == 1


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"skyplane-orch {version('skyplane-orchestration')}\n"


# -- Errors name the options of the command, and leave all other words as they are


#: Arguments of the library without an option.
_OF_PYTHON = {
    *("gateway_settings", "max_active_fleets", "clouds", "hosts"),
}


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("verify", "'none'", "--no-verify"),
        ("recursive", "True", "-r"),
        ("max_relays", "", "--relays"),
        ("publish_last", "", "--last"),
        ("clouds_file", "", "--clouds"),
        ("source_url", "", "SRC"),
        ("destination_endpoint", "", "--dst-endpoint"),
        ("source_credential_ref", "", "--src-credentials"),
        ("source_read_gbps", "", "--source-read-gbps"),
        ("conflict", "", "--conflict"),
        ("no_such_argument", "", "no_such_argument"),
    ],
)
def test_an_argument_is_named_by_its_option(name: str, value: str, option: str) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b"])
    assert with_option_names(Text("give ", FieldName(name, value)), options) == f"give {option}"


def test_every_argument_in_a_message_has_an_option() -> None:
    parsers = [
        build_parser(name).parse_args(words.split()).parser
        for name, words in (
            ("cp", "cp a b"),
            ("sync", "sync a b"),
            ("plan", "plan a b"),
            ("grid", "grid profile a b --out c"),
        )
    ]
    names = {
        name
        for _, call, places in calls_with_fields()
        for name in places - {one.arg for one in call.keywords}
    }
    for name in sorted(names - _OF_PYTHON):
        texts = [
            with_option_names(Text(FieldName(name)), argparse.Namespace(parser=one))
            for one in parsers
        ]
        assert any(text != name for text in texts), name
