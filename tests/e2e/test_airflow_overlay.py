"""The example DAG between two S3 servers: gateways, relays, every byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_dags.demo_support.airflow_run import run_example
from example_dags.demo_support.dataset import demo_data_set
from example_dags.demo_support.runner import Outcome
from example_dags.demo_support.servers import demo_site
from example_dags.demo_support.verify import left_running, relayed_share, verify

pytestmark = pytest.mark.e2e


def test_example_dag_moves_every_byte_over_relays(tmp_path: Path) -> None:
    data = demo_data_set(large=3, small=40)
    with demo_site(tmp_path) as site:
        data.write(site.source.client(), site.source.bucket, site.source.prefix)
        outcome = Outcome(**run_example(site))
        assert outcome.state == "success", site.log_path.read_text()[-8000:]
        assert set(outcome.tasks.values()) == {"success"}
        assert outcome.plan is not None
        assert outcome.transfer is not None
        assert outcome.gateways >= 4
        assert len(outcome.plan["instances"]) == outcome.gateways
        share = relayed_share(outcome.transfer, site.source.region, site.destination.region)
        assert share > 0.2
        checked = verify(data, site.destination)
        assert checked.differences == ()
        assert (checked.objects, checked.size_bytes) == (len(data.sizes), data.size_bytes)
        assert outcome.transfer["copied"] == len(data.sizes)
        assert left_running(site, (outcome.fleet_key,)) == ()
