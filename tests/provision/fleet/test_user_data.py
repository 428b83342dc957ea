from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.provision.fleet import receive, registry_login
from skyplane_orchestration.provision.fleet.registries import Registry
from skyplane_orchestration.provision.fleet.user_data import (
    MOST_USER_DATA_BYTES,
    BootSettings,
    hiding_identity,
    user_data,
)

GOLDEN = Path(__file__).parent / "golden"
IMAGE = BootSettings(image="registry.example/team/skyplane-gateway:1.0@sha256:" + "ab" * 32)
PUSH = BootSettings()
ARCHIVE = BootSettings(image="https://files.example/gw.tar?@RUN@&b='2'", image_sha256="cd" * 32)
BUNDLE = BootSettings(bundle="https://files.example/bundle.zip?a=1&b='2'", bundle_sha256="cd" * 32)
ECR = Registry("aws", "123456789012.dkr.ecr.eu-west-3.amazonaws.com", "AWS")
ALL = pytest.mark.parametrize("settings", [IMAGE, ARCHIVE, PUSH, BUNDLE])
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n" + "MIIB+/==\n" * 8 + "-----END CERTIFICATE-----\n"
TOKEN = "5e" * 32


def document(instance: str = "aws:us-east-1/0") -> EnrolmentDocument:
    return EnrolmentDocument(
        fleet_key="ab" * 16,
        instance=instance,
        port=7600,
        start_within_s=900.0,
        authority_pem=CERTIFICATE,
        token_hex=TOKEN,
    )


@pytest.mark.parametrize(
    ("name", "settings"), [("image.sh", IMAGE), ("archive.sh", ARCHIVE), ("push.sh", PUSH)]
)
def test_scripts_are_as_recorded(name: str, settings: BootSettings) -> None:
    """After a change that is meant, write the new script to the file and read the difference.

    Of the software, checksum and size change with each line of the gateway. The receiver is a
    file of its own.
    """
    script = user_data(settings, document(), 86400.0)
    changing = []
    if settings.software == "push" or settings.address:
        receiver = Path(str(receive.__file__)).read_text()
        changing.append((f"<<'PYTHON'\n{receiver}PYTHON\n", "<<'PYTHON'\nPYTHON\n"))
    if software := settings.pushed():
        changing += [
            (f'"$address" 7600 {software.size_bytes}\n', '"$address" 7600 2500000\n'),
            (software.sha256, "cd" * 32),
        ]
    for text, recorded in changing:
        assert script.count(text) == 1
        script = script.replace(text, recorded)
    assert script == (GOLDEN / name).read_text()


def test_a_bundle_at_an_address_differs_in_that_alone() -> None:
    pushed, read = (user_data(one, document(), 86400.0).splitlines() for one in (PUSH, BUNDLE))
    differing = [new for old, new in zip(pushed, read, strict=True) if old != new]
    assert [line.split()[-3:-1] for line in differing[:1]] == [
        ["cd" * 32, shlex.quote(BUNDLE.bundle)]
    ]
    assert differing[1].strip() == '"$address" 7600 0'
    assert len(differing) == 2


def with_login() -> str:
    return hiding_identity(user_data(IMAGE, document(), 86400.0, registry=ECR))


def test_a_login_is_as_recorded() -> None:
    """The program that gets the password is a file of its own."""
    program = Path(str(registry_login.__file__)).read_text()
    script = with_login()
    assert script.count(f"<<'PYTHON'\n{program}PYTHON\n") == 1
    script = script.replace(f"<<'PYTHON'\n{program}PYTHON\n", "<<'PYTHON'\nPYTHON\n")
    assert script == (GOLDEN / "login.sh").read_text()


@ALL
def test_gateways_are_kept_from_an_identity_before_they_start(settings: BootSettings) -> None:
    open_to_all = user_data(settings, document(), 86400.0)
    lines = hiding_identity(open_to_all).splitlines()
    rule = next(n for n, line in enumerate(lines) if line.startswith("ip rule add pref 1 uidrange"))
    assert "10001-10001 to 169.254.169.254" in lines[rule]
    assert rule < lines.index("await_gateways &")
    assert "169.254.169.254" not in open_to_all


@pytest.mark.parametrize("worker_port", [7600, 443])
@pytest.mark.parametrize("settings", [IMAGE, ARCHIVE, PUSH])
@pytest.mark.parametrize("check", ["dash -n", "shellcheck"])
def test_scripts_are_good_posix_shell(
    settings: BootSettings, check: str, worker_port: int, tmp_path: Path
) -> None:
    command = check.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    path = tmp_path / "script.sh"
    # Which is for images alone.
    script = user_data(settings, document(), 86400.0, 2, worker_port, ECR)
    path.write_text(hiding_identity(script))
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@ALL
def test_the_document_reaches_the_gateway_unchanged(settings: BootSettings) -> None:
    awkward = document(instance="it's $(a) `b` \\n @IMAGE@ @URL@")
    script = user_data(settings, awkward, 86400.0)
    command = script[script.index("printf '%s\\n' '{") :].partition(" |\n")[0]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert EnrolmentDocument.from_json(done.stdout) == awkward


def scheduled_ends(
    hard_end_s: float, setup_s: int, port: int, settings: BootSettings = IMAGE
) -> list[str]:
    """The minutes that the script gives to `shutdown`, if it awaits gateways after `setup_s`."""
    script = user_data(settings, replace(document(), port=port), hard_end_s)
    lines = script.splitlines()
    first = lines.index("uptime_s() { cut -d. -f1 /proc/uptime; }")
    last = next(n for n, line in enumerate(lines) if line.startswith("address="))
    program = [
        'shutdown() { echo "$2"; }',
        "systemctl() { :; }",
        *lines[first:last],
        f"uptime_s() {{ echo $((booted_s + {setup_s})); }}",
        "sleep() { echo nobody listens; exit 0; }",
        "address=127.77.0.9",
        "await_gateways",
    ]
    done = subprocess.run(
        ["sh", "-euc", "\n".join(program)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@ALL
def test_a_boot_that_hangs_ends_long_before_the_hard_end(settings: BootSettings) -> None:
    """`docker pull` and `docker run` have no timeout, and nobody may be left who replaces it."""
    with socket.create_server(("127.77.0.8", 0)) as of_another_machine:
        port = of_another_machine.getsockname()[1]
        assert scheduled_ends(86400.0, 0, port, settings) == ["+15", "nobody listens"]
    lines = user_data(settings, document(), 86400.0).splitlines()
    gateways = next(n for n, line in enumerate(lines) if TOKEN in line)
    waits = [n for n, line in enumerate(lines) if line.lstrip().startswith("retry ")]
    assert max(waits) < lines.index("await_gateways &") < gateways


@pytest.mark.parametrize("before", [0, 1])
def test_the_hard_end_counts_from_the_boot_in_whole_minutes_rounded_up(before: int) -> None:
    """The enrolment listens first, and the first gateway after it, on the next port."""
    with socket.create_server(("127.77.0.9", 0)) as listener:
        port = listener.getsockname()[1] - before
        assert scheduled_ends(86400.0, 299, port) == ["+15", "+1436"]
        assert scheduled_ends(61.0, 59, port) == ["+2", "+2"]


def test_a_script_fits_ec2() -> None:
    assert len(user_data(BUNDLE, document(), 86400.0, 8, 443)) < MOST_USER_DATA_BYTES * 0.7
    with pytest.raises(ConfigurationInvalid, match="16384"):
        user_data(IMAGE, document(instance="a" * MOST_USER_DATA_BYTES), 86400.0)


@pytest.mark.parametrize("hard_end_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_hard_end_that_is_none_is_refused(hard_end_s: float) -> None:
    with pytest.raises(ConfigurationInvalid, match="hard_end_s"):
        user_data(IMAGE, document(), hard_end_s)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"image": IMAGE.image, "bundle": BUNDLE.bundle}, "an image or a bundle"),
        ({"software": "image"}, "'image', which needs image"),
        ({"software": "bundle"}, "'bundle', which needs bundle"),
        ({"software": "push", "image": IMAGE.image}, "'push', which has no image"),
        ({"software": "bundle", "image": IMAGE.image}, "'bundle', which needs bundle"),
        ({"software": "wheel"}, "software"),
        ({"image": "skyplane-gateway"}, "pinned by a digest"),
        ({"image": "skyplane-gateway:latest"}, "pinned by a digest"),
        ({"image": "skyplane-gateway@sha256:" + "AB" * 32}, "pinned by a digest"),
        ({"image": "a b@sha256:" + "ab" * 32}, "pinned by a digest"),
        ({"image": "--privileged@sha256:" + "ab" * 32}, "pinned by a digest"),
        ({"image": IMAGE.image, "bundle_sha256": "cd" * 32}, "without the address"),
        ({"image": IMAGE.image, "image_sha256": "cd" * 32}, "without the address"),
        ({"image": ARCHIVE.image}, "image_sha256"),
        ({"image": "http://files.example/x.tar", "image_sha256": "cd" * 32}, "HTTPS"),
        ({"bundle": "bundle.zip", "bundle_sha256": "cd" * 32}, "without the address"),
        ({"bundle": BUNDLE.bundle}, "bundle_sha256"),
        ({"bundle": BUNDLE.bundle, "bundle_sha256": "CD" * 32}, "bundle_sha256"),
        ({"bundle": "http://files.example/x.zip", "bundle_sha256": "cd" * 32}, "HTTPS"),
        ({"bundle": "https:///x.zip", "bundle_sha256": "cd" * 32}, "HTTPS"),
        ({"bundle": "https://[::1/x.zip", "bundle_sha256": "cd" * 32}, "bundle"),
        ({"bundle": BUNDLE.bundle + "\n", "bundle_sha256": "cd" * 32}, "HTTPS"),
        ({"image": "https://files.example/a b.tar", "image_sha256": "cd" * 32}, "blanks"),
        ({"image": "https://files.example/ä.tar", "image_sha256": "cd" * 32}, "encoded"),
    ],
)
def test_settings_that_pin_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        BootSettings(**settings)


def test_a_refused_address_is_not_shown_since_it_may_be_signed() -> None:
    for address in ("http://files.example/x.tar?signature=1", "https://[::1/x.tar?signature=1"):
        with pytest.raises(ConfigurationInvalid) as caught:
            BootSettings(image=address, image_sha256="cd" * 32)
        assert "signature" not in str(caught.value)


@ALL
def test_the_token_is_in_no_argument_of_a_process(settings: BootSettings) -> None:
    lines = user_data(settings, document(), 86400.0).splitlines()
    (line,) = (line for line in lines if TOKEN in line)
    command = shlex.split(line.removesuffix("|"))
    assert command[0] == "printf"  # Part of the shell.
    assert json.loads(command[2])["token_hex"] == TOKEN


def test_settings_of_earlier_versions_give_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = BootSettings(wheel_url="https://files.example/x.whl", wheel_sha256="cd" * 32)
    assert settings.software == "push"
    assert "wheel_url and wheel_sha256 are not used any more" in caplog.text
