"""Predicts the paper's figures from a measured grid; writes the page and its plots below docs/.

With `--figure` it computes only those figures: it draws their plots, prints their sections, and
does not change the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.paper.document import PAGE, document, sections
from bench.paper.evaluation import FIGURES, Evaluation, evaluate
from bench.paper.tables import IMAGES
from skyplane_orchestration.errors import SkyplaneError


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    chosen = frozenset(options.figure or FIGURES)
    try:
        found = evaluate(options.grid_dir, chosen, options.build, fresh=options.fresh)
    except (SkyplaneError, OSError) as error:
        print(f"bench.paper: {error}", file=sys.stderr)
        return 2
    # Here, because everything else works where matplotlib is not installed.
    from bench.paper.plots import draw

    for file in draw(found, options.out / IMAGES):
        print(f"wrote {file}", file=sys.stderr)
    if options.figure is None:
        page = options.out / PAGE
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(document(found), encoding="utf-8")
        print(f"wrote {page}", file=sys.stderr)
    if options.json:
        print(json.dumps(as_data(found), indent=2))
    elif options.figure is not None:
        print("\n\n".join(sections(found)))
    return 0


def as_data(found: Evaluation) -> dict[str, Any]:
    """The numbers behind the page, without the grid."""
    parts: dict[str, Any] = {
        "grid": found.grid.name,
        "as_of": found.grid.as_of,
        "commit": found.commit,
        "pairs": found.pairs,
    }
    for name in ("motivation", "ablation", "bottlenecks", "instances", "comparison"):
        part = getattr(found, name)
        if part is not None:
            parts[name] = asdict(part)
    if found.budgets is not None:
        parts["budgets"] = [asdict(route) for route in found.budgets]
    return parts


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.paper", description=__doc__)
    parser.add_argument("grid_dir", type=Path, help="a measured grid with the column sent_gbps")
    parser.add_argument("--figure", nargs="+", choices=FIGURES, help="only these figures")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where the page goes")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--build", type=Path, default=Path("build/paper"), help="kept results")
    parser.add_argument("--fresh", action="store_true", help="take nothing from earlier runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
