"""Takes the screenshots of Dagster's pages that the docs show.

    python -m tests.matrix dagster-1.13 --module tests.screenshots.dagster

It shows the asset of the example `dagster/sydney_to_paris` after a run, and the run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from example_dags.demo_support.dataset import demo_data_set
from example_dags.demo_support.servers import demo_site
from tests.e2e.held_store import wait_for
from tests.e2e_dagster.dev import REPOSITORY, dagster_dev
from tests.e2e_dagster.graphql import GraphQl
from tests.screenshots.browser import NoBrowser, browser, take

ASSET: Final = "imagenet_paris"


def main() -> int:
    try:
        browser()
    except NoBrowser as error:
        print(f"skipped: {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
        root = Path(folder)
        (root / "dagster").mkdir()
        with demo_site(root / "demo") as demo:
            source = demo.source
            demo_data_set().write(source.client(), source.bucket, source.prefix)
            environment = {
                **demo.environment(),
                "DAGSTER_HOME": str(root / "dagster"),
                "DAGSTER_DISABLE_TELEMETRY": "yes",
                "SKYPLANE_PROCESSES_PER_INSTANCE": "1",
            }
            definitions = REPOSITORY / "example_dags/dagster/sydney_to_paris.py"
            with dagster_dev(root, definitions, environment) as graphql:
                run_and_take(graphql)
    return 0


def run_and_take(graphql: GraphQl) -> None:
    repository = wait_for(graphql.repository, "the code location")
    assert repository is not None
    run = graphql.launch(repository, ASSET)
    wait_for(lambda: graphql.run(run).is_over, f"the end of run {run}")
    assert graphql.run(run).status == "SUCCESS", graphql.run(run).messages[-5:]
    graphql.dismiss_greeting()
    take(f"{graphql.url}/assets/{ASSET}?view=overview", "dagster-asset", (1900, 1600))
    take(f"{graphql.url}/runs/{run}", "dagster-run")


if __name__ == "__main__":
    sys.exit(main())
