"""`make live`: a copy within each cloud that this shell has buckets and credentials for.

It prints a report that can be sent to the maintainers. See README.md.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.live.report import Redactor, outcome_of

MOST_USD: Final = 1.0
CLOUDS: Final = ("aws", "gcp", "azure")
MIB: Final = 1 << 20
FILES: Final = {"large": 48 * MIB, "folder/medium": 15 * MIB, "empty": 0} | {
    f"s{n}": 4096 for n in range(256)
}
_USAGE: Final = (
    "name two prefixes for at least one cloud, such as"
    " SKYPLANE_LIVE_AWS='s3://bucket-virginia/live/ s3://bucket-ireland/live/'"
    " (also SKYPLANE_LIVE_GCP, SKYPLANE_LIVE_AZURE)"
)


class StepFailed(Exception):
    """A command has failed; holds its status and what it has printed as JSON."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        super().__init__(f"status {status}")
        self.answer = answer


class Stopped(BaseException):
    """SIGINT or SIGTERM has come."""


@dataclass
class Live:
    """One run. Its objects lie below a folder of its own, its fleets are of one deployment."""

    deployment: str
    clouds_file: str
    run: str = field(default_factory=lambda: secrets.token_hex(3))
    left_usd: float = MOST_USD
    is_stopped: bool = False
    is_cleaning: bool = False
    may_leave: bool = False

    def test(self, cloud: str, prefixes: str, folder: Path) -> dict[str, Any]:
        """What the report says of a cloud; nothing is left there, if its cleanup succeeded."""
        begun_s = time.monotonic()
        ends = [f"{prefix.rstrip('/')}/{self.run}/" for prefix in prefixes.split()]
        found: dict[str, Any] = {"passed": False}
        try:
            found |= self._copy(cloud, ends, folder)
        except StepFailed as error:
            found |= outcome_of(error.answer)
        except Stopped:
            found["stopped"] = True
        finally:
            found["clean"] = self._clean_up(cloud, ends)
        found["minutes"] = round((time.monotonic() - begun_s) / 60, 1)
        report: dict[str, Any] = Redactor.of(os.environ, prefixes).redacted(found)
        return report

    def _copy(self, cloud: str, ends: Sequence[str], folder: Path) -> dict[str, Any]:
        source, destination = ends
        fleet = self._fleet(cloud)
        original = folder / "original"
        checks = self.command("doctor", *fleet)["checks"]
        self.command("cp", "-r", str(original), source)
        # The plan is refused above what is left, and the copy stops at it.
        cap = ["--gateways", "always", "--instance-limit", "1"]
        cap += ["--max-job-usd", f"{self.left_usd:.4f}"]
        result = self.command("cp", "-r", source, destination, *cap, *fleet)
        self.left_usd -= result["cost"]["total_usd"]
        self.command("verify", "-r", str(original), destination)
        left = self.command("sweep", "--dry-run", *fleet)["orphans"]
        passed = not left and result["copied"] == len(FILES) and result["encrypted"]
        warned = [check["name"] for check in checks if check["state"] != "ok"]
        return outcome_of(result) | {"passed": passed, "warned": warned, "orphans": len(left)}

    def _clean_up(self, cloud: str, ends: Sequence[str]) -> bool:
        """End fleets and delete objects, whatever signals come. True if all of it worked."""
        self.is_cleaning = True
        with tempfile.TemporaryDirectory() as empty:
            done = [self._tried("sweep", "--older-than-s", "0", *self._fleet(cloud))]
            done += [
                self._tried("cp", "-r", "--move", "--allow-empty", end, f"{empty}/{number}")
                for number, end in enumerate(ends)
            ]
            done.append(self._tried("sweep", "--destination", ends[1]))
        self.is_cleaning = False
        return all(done)

    def _tried(self, *words: str) -> bool:
        try:
            self.command(*words)
        except StepFailed:
            return False
        return True

    def _fleet(self, cloud: str) -> tuple[str, ...]:
        words = ("--provisioner", cloud, "--deployment", self.deployment)
        return (*words, "--clouds", self.clouds_file) if self.clouds_file else words

    def command(self, *words: str) -> dict[str, Any]:
        """The answer of a command of this installation. Raises StepFailed and Stopped."""
        if self.is_stopped and not self.is_cleaning:
            raise Stopped
        print(f"$ skyplane-orch {shlex.join(words)}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "skyplane_orchestration.cli", *words, "--json"]
        # A session of its own: signals reach it through this process only, once.
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                self.may_leave = not self.is_cleaning
                printed, _ = process.communicate()
                self.may_leave = False
            except Stopped:
                process.send_signal(signal.SIGINT)
                process.communicate()
                raise
        answer: dict[str, Any] = json.loads(printed or "{}")
        if process.returncode:
            raise StepFailed(process.returncode, answer)
        return answer

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal: leave the current step, unless it is a cleanup."""
        self.is_stopped = True
        if self.may_leave:
            self.may_leave = False
            raise Stopped


def main() -> int:
    given = {cloud: os.environ.get(f"SKYPLANE_LIVE_{cloud.upper()}", "") for cloud in CLOUDS}
    if any(prefixes and len(prefixes.split()) != 2 for prefixes in given.values()) or not any(
        given.values()
    ):
        print(_USAGE, file=sys.stderr)
        return 2
    live = Live(
        os.environ.get("SKYPLANE_LIVE_DEPLOYMENT", "live"),
        os.environ.get("SKYPLANE_LIVE_CLOUDS", ""),
        left_usd=min(MOST_USD, float(os.environ.get("SKYPLANE_LIVE_MAX_USD", MOST_USD))),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, live.stop)
    report: dict[str, Any] = {
        "skyplane-orchestration": version("skyplane-orchestration"),
        "python": platform.python_version(),
        "system": platform.system(),
        "most_usd": live.left_usd,
    }
    with tempfile.TemporaryDirectory() as name:
        for path, size in FILES.items():
            file = Path(name, "original", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(os.urandom(size))
        try:
            for cloud, prefixes in given.items():
                asked = bool(prefixes) and not live.is_stopped
                tested = live.test(cloud, prefixes, Path(name)) if asked else "not tested"
                report[cloud] = tested
        finally:
            print(json.dumps(report, indent=2))
    tried = [found for found in report.values() if isinstance(found, dict)]
    return 0 if all(found["passed"] and found["clean"] for found in tried) else 1


if __name__ == "__main__":
    sys.exit(main())
