"""Takes the screenshots of Airflow's pages that the docs show.

python -m tests.screenshots.airflow        after a run of the example `sydney_to_paris`
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from example_dags.demo_support.dataset import demo_data_set
from example_dags.demo_support.servers import demo_site
from tests.e2e.airflow_site import ALL_SERVICES, airflow_site
from tests.e2e.held_store import wait_for
from tests.e2e_airflow.rest import Rest
from tests.screenshots.browser import NoBrowser, browser, take

EXAMPLES: Final = Path(__file__).parents[2] / "example_dags"
DAG: Final = "sydney_to_paris"


def main() -> int:
    try:
        browser()
    except NoBrowser as error:
        print(f"skipped: {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
        root = Path(folder)
        with demo_site(root / "demo") as demo:
            source = demo.source
            demo_data_set().write(source.client(), source.bucket, source.prefix)
            extra = {
                **{name: value for name, value in demo.environment().items() if "DEMO" in name},
                "AWS_ACCESS_KEY_ID": "demo",
                "AWS_SECRET_ACCESS_KEY": "demo",
                "SKYPLANE_PROCESSES_PER_INSTANCE": "1",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
                "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
            }
            with airflow_site(root, EXAMPLES, extra, ALL_SERVICES) as site:
                rest = Rest(site.url)
                rest.trigger(DAG)
                ended = wait_for(
                    lambda: state if (state := rest.state(DAG)) in ("success", "failed") else "",
                    f"the end of {DAG}",
                )
                assert ended == "success", ended
                take_all(rest)
    return 0


def take_all(rest: Rest) -> None:
    """The grid with the group, the transfer's log and links, its plan, the event of the asset."""
    page = f"{rest.url}/dags/{DAG}"
    asset = rest.call("GET", "assets")["assets"][0]["id"]
    take(f"{page}/runs/run", "airflow-grid")
    take(f"{page}/runs/run/tasks/imagenet.transfer", "airflow-task")
    take(f"{page}/runs/run/tasks/imagenet.transfer/details", "airflow-links")
    plan, _, _ = rest.links(DAG, "imagenet.plan")["Plan"].partition("#")
    take(f"{rest.url}{plan}", "airflow-plan", (1080, 700))
    take(f"{rest.url}/assets/{asset}", "airflow-asset")


if __name__ == "__main__":
    sys.exit(main())
