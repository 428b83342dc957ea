"""Writes the files that a new cloud begins with: `python -m docs.add_cloud NAME --title TITLE`.

The templates are in `docs/cloud_template`. No existing file is changed: the lines to add to those
are printed. docs/how-to/add-a-cloud.md has the rest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

REPOSITORY: Final = Path(__file__).parent.parent
_TEMPLATES: Final = REPOSITORY / "docs/cloud_template"
_NAME: Final = re.compile(r"[a-z][a-z0-9]{1,11}\Z")

#: Folder or file of the templates -> where the files go.
_FOLDERS: Final = {
    "provision": "src/skyplane_orchestration/provision/$name",
    "tests": "tests/provision/$name",
}
_PAGES: Final = {
    "pages/how-to.md.txt": "docs/how-to/$name.md",
    "pages/options.md.txt": "docs/reference/options-$name.md",
    "pages/permissions.md.txt": "docs/reference/permissions-$name.md",
}

_BY_HAND: Final = """\
By hand, in files that exist:
  pyproject.toml                            extra: $name = ["the SDK"]; then `make constraints`
                                            and `make matrix-pins`
  setup.cfg, contract clouds                the SDK: skyplane_orchestration.provision.$name.**
  provision/cloud_registry.py               "$name": (its class, that of its options) in _CLASSES
  model/location.py                         "$name" in CLOUDS, is_url_or_path
  planner/pricing/instance_billing.py       boot time and minimum charge, with source and date
  cli/commands/doctor.py                    "$name": the SDK's module
  grids/skyplane_grids/                     rows in regions.csv, limits.csv, price_rules.yaml
  tests/provision/fleet/
      cloud_harnesses.py                    "$name": ${name}_harness in HARNESSES
      test_cloud_settings.py                its class, options and SDK in CLOUDS
  mkdocs.yml                                the three pages in nav
  CHANGELOG.md, README.md                   a line each
"""


def files_of(name: str, title: str) -> dict[Path, str]:
    """Path in the repository -> text of each file of a new cloud.

    Args:
        name: first part of its region tags, `oracle`.
        title: as people write it, `Oracle Cloud`.
    """
    words = {"name": name, "Class": name.capitalize(), "title": title}
    found: dict[Path, str] = {}
    for folder, target in _FOLDERS.items():
        for template in sorted((_TEMPLATES / folder).iterdir()):
            place = Path(_filled(target, words)) / template.name.removesuffix(".txt")
            found[place] = _filled(template.read_text(encoding="utf-8"), words)
    for page, target in _PAGES.items():
        text = (_TEMPLATES / page).read_text(encoding="utf-8")
        found[Path(_filled(target, words))] = _filled(text, words)
    return found


def write(name: str, title: str, root: Path) -> list[Path]:
    """Write the files below `root`, formatted; their paths.

    Raises FileExistsError: one of them exists; then none is written.
    """
    texts = {root / place: text for place, text in files_of(name, title).items()}
    for path in texts:
        if path.exists():
            raise FileExistsError(f"{path} exists; remove it, or choose another name")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    modules = [str(path) for path in texts if path.suffix == ".py"]
    # Order of imports and line breaks depend on the cloud's name.
    for verb in (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet")):
        settings = ("--config", str(REPOSITORY / "pyproject.toml"))
        subprocess.run([sys.executable, "-m", "ruff", *verb, *settings, *modules], check=True)
    return list(texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files of the cloud that the arguments name, and say what is left to do."""
    parser = argparse.ArgumentParser(prog="python -m docs.add_cloud", description=__doc__)
    parser.add_argument("name", help="first part of its region tags: lower-case letters, digits")
    parser.add_argument("--title", required=True, help="its name as people write it")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="another checkout")
    options = parser.parse_args(arguments)
    if not _NAME.match(options.name):
        parser.error(f"name {options.name!r} must be 2 to 12 lower-case letters and digits")
    try:
        written = write(options.name, options.title, options.root)
    except FileExistsError as error:
        parser.error(str(error))
    lines = "".join(f"  {path.relative_to(options.root)}\n" for path in written)
    sys.stdout.write(f"Written:\n{lines}{_filled(_BY_HAND, {'name': options.name})}")
    return 0


def _filled(text: str, words: Mapping[str, str]) -> str:
    return Template(text).substitute(words)


if __name__ == "__main__":
    sys.exit(main())
