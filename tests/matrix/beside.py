"""An Airflow that is there already stays as it is when the package is installed beside it.

    python -m tests.matrix.beside FOLDER    # write the facts of `official/` again

A fact is what Airflow's own constraints file pins of the packages that Airflow and this package
need. FOLDER has the whole files, as `constraints-RELEASE-PYTHON.txt`, from
https://raw.githubusercontent.com/apache/airflow/constraints-RELEASE/constraints-PYTHON.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.matrix.environments import FOLDER, run_uv
from tests.matrix.lines import HERE, LINES, Line

#: The Python whose files are facts here. Managed services run it too.
PYTHON: Final = "3.12"
#: Lines that a user has to edit in Airflow's file, by release; all else resolves under it.
EDITS: Final = dict.fromkeys(
    ("2.11.0", "3.0.6"), ("apache-airflow-providers-common-compat==1.10.1",)
)
_USES: Final = """
import importlib, pkgutil
import skyplane_gateway.stores.azure.store, skyplane_gateway.stores.gcs.store
import skyplane_gateway.stores.s3.store, skyplane_orchestration.provision.ssh.connection
from skyplane_orchestration.provision import aws, azure, gcp
for name in ("operators", "hooks", "triggers", "links"):
    package = importlib.import_module(f"skyplane_orchestration.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
"""


@dataclass(frozen=True, slots=True)
class Official:
    """What Airflow's constraints file of a release pins, of the packages that are needed here."""

    release: str

    @property
    def path(self) -> Path:
        return HERE / "official" / f"airflow-{self.release}.txt"

    def pins(self, *, edited: bool) -> dict[str, str]:
        """Version by name, before or after a user's edits."""
        edits = EDITS.get(self.release, ()) if edited else ()
        return _pins([*self.path.read_text().splitlines(), *edits])


def check_beside(line: Line, official: Official, python: Path) -> list[str]:
    """Install the package beside an Airflow. Returns what went wrong. Raises CommandFailed.

    The environment has every package of Airflow's file that the package needs too.
    """
    place = FOLDER / f"beside-{official.release}"
    interpreter = place / "bin" / "python"
    run_uv("venv", "--quiet", "--clear", "--python", python, place)
    install = ("pip", "install", "--quiet", "--python", interpreter)
    run_uv(*install, "--requirement", official.path)
    before = _installed(interpreter)
    edits = EDITS.get(official.release, ())
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        pins = official.pins(edited=True)
        constraints.write_text("\n".join(f"{name}=={pin}" for name, pin in pins.items()))
        run_uv(*install, "--constraint", constraints, f".[{','.join(line.extras)}]",
               f"apache-airflow=={official.release}")  # fmt: skip
    wanted = before | _pins(list(edits))
    after = _installed(interpreter)
    changed = [
        f"{name} {version} became {after.get(name, 'nothing')}"
        for name, version in wanted.items()
        if after.get(name) != version
    ]
    used = subprocess.run(
        [interpreter, "-I", "-c", _USES], capture_output=True, text=True, check=False
    )
    return changed + ([used.stderr[-2000:]] if used.returncode else [])


def record(line: Line, official: Official, folder: Path) -> None:
    """Write the facts of a release from Airflow's whole file."""
    whole = (folder / f"constraints-{official.release}-{PYTHON}.txt").read_text()
    made = re.findall(r"generated on (\d{4}-\d\d-\d\d)", whole)[0]
    pinned = _pins(whole.splitlines())
    with tempfile.TemporaryDirectory() as place:
        constraints, needs = (Path(place) / name for name in ("constraints.txt", "needs.txt"))
        edited = pinned | _pins(list(EDITS.get(official.release, ())))
        constraints.write_text("\n".join(f"{name}=={pin}" for name, pin in edited.items()))
        needs.write_text(f"apache-airflow=={official.release}\n" + "\n".join(line.also))
        extras = [word for extra in line.extras for word in ("--extra", extra)]
        found = run_uv("pip", "compile", "pyproject.toml", needs, *extras, "--quiet",
                       "--python-version", PYTHON, "--no-header", "--no-annotate",
                       "--constraint", constraints)  # fmt: skip
    airflow = {"apache-airflow": official.release}
    kept = [
        f"{name}=={pin}"
        for name, pin in (pinned | airflow).items()
        if name in _pins(found.splitlines())
    ]
    official.path.write_text(
        f"# Pins of Airflow's constraints-{official.release}/constraints-{PYTHON}.txt, made on"
        f" {made}:\n# of packages that Airflow and this package need, and of no others.\n"
        + "\n".join(sorted(kept))
        + "\n"
    )


def _installed(interpreter: Path) -> dict[str, str]:
    return _pins(run_uv("pip", "freeze", "--python", interpreter).splitlines())


def _pins(rows: list[str]) -> dict[str, str]:
    """Version by name of rows such as `name==1.0`; later rows replace earlier ones."""
    found: dict[str, str] = {}
    for row in rows:
        if re.match(r"[\w.\-\[\]]+==", row):
            need = Requirement(row)
            (pin,) = need.specifier
            found[canonicalize_name(need.name)] = pin.version
    return found


if __name__ == "__main__":
    for _line in LINES:
        for _release in _line.beside:
            record(_line, Official(_release), Path(sys.argv[1]))
