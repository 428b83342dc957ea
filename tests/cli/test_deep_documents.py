"""Documents that are nested too deep: one line, exit 2, and JSON with --json."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path
from zlib import compress

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.resume_handle import PREFIX

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
VERBS = {
    "plan": "provision {file}",
    "fleet-status": "status --fleet {file}",
    "fleet-teardown": "teardown --fleet {file}",
    "fleet-transfer": "transfer {tree} {tree}/new --fleet {file}",
    "result": "resume {file}",
    "handle": "resume {handle}",
    "hosts": "sweep --deployment d --provisioner ssh --hosts {file}",
    "clouds": "sweep --deployment d --provisioner cloud --clouds {file}",
    "grid.json": f"plan {SRC} {DST} --grid {{grid}}",
    "price_rules.yaml": f"plan {SRC} {DST} --grid {{prices}}",
    "price-overrides": f"plan {SRC} {DST} --price-overrides {{overrides}}",
}


@pytest.mark.parametrize("depth", [70, 900, 3_000])
@pytest.mark.parametrize("verb", VERBS)
def test_a_deep_document_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, depth: int
) -> None:
    deep = '{"notes":' * depth + "1" + "}" * depth
    names = {"file": "deep.json", "overrides": "deep.yaml"}
    places = {name: tmp_path / file for name, file in names.items()}
    for name, file in (("grid", "grid.json"), ("prices", "price_rules.yaml")):
        places[name] = tmp_path / name / file
        places[name].parent.mkdir()
    for place in places.values():
        place.write_text(deep)
    (tmp_path / "tree").mkdir()
    (tmp_path / "prices" / "throughput.csv").write_text(f"src,dst,gbps\n{SRC},{DST},5\n")
    words = {
        **{name: str(place) for name, place in places.items()},
        "grid": str(tmp_path / "grid"),
        "prices": str(tmp_path / "prices"),
        "tree": str(tmp_path / "tree"),
        "handle": PREFIX + urlsafe_b64encode(compress(deep.encode())).decode(),
    }
    assert main([*VERBS[verb].format(**words).split(), "--json"]) == 2
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    error = json.loads(out)["error"]
    assert "nested deeper than 64 levels" in error["message"]
