"""The figures of a fit to one's own measurements are printed for every pair of clouds there is."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from bench import fit_errors

from skyplane_orchestration.grids import load_grid


def test_every_pair_of_clouds_with_measurements_has_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = load_grid()
    tags = [tag for tag in shipped.tags if not tag.startswith("azure:")][::6]
    rates, rtts = ["src,dst,gbps"], ["src,dst,rtt_ms"]
    for src, dst in itertools.permutations(tags, 2):
        edge = shipped.index_of(src), shipped.index_of(dst)
        rates.append(f"{src},{dst},{shipped.throughput_gbps[edge]}")
        rtts.append(f"{src},{dst},{shipped.rtt_ms[edge]}")
    (tmp_path / "throughput.csv").write_text("\n".join(rates), encoding="utf-8")
    (tmp_path / "latency.csv").write_text("\n".join(rtts), encoding="utf-8")
    assert fit_errors.main([str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    kinds = [result["case"] for result in results if " rates " in result["case"]]
    assert [kind.split(" rates ")[1] for kind in kinds] == [
        "aws -> aws",
        "aws -> gcp",
        "gcp -> aws",
        "gcp -> gcp",
    ]
    # The rates are those of the shipped model, so a fit to them is near.
    assert all(0 <= result["value"] < 10 for result in results if result["unit"] == "% error")
