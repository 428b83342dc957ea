"""The plugin is found, and loads its pages in a web server only."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from skyplane_orchestration.plugins.skyplane import SkyplanePlugin

CODE = """
import sys
import airflow.plugins_manager, airflow.providers.common.compat.sdk
before = set(sys.modules)
from skyplane_orchestration.plugins.skyplane import SkyplanePlugin
SkyplanePlugin()
print(*sorted(set(sys.modules) - before))
"""


def test_the_entry_point_leads_here() -> None:
    (point,) = entry_points(group="airflow.plugins", name="skyplane")
    assert point.load() is SkyplanePlugin


def test_every_process_of_airflow_loads_it_and_so_it_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert "skyplane_orchestration.plugins.skyplane" in loaded
    roots = ("fastapi", "flask", "sqlalchemy", "airflow.api_fastapi", "airflow.www")
    assert not [name for name in loaded if name.startswith(roots)]
    assert not [name for name in loaded if name.startswith("skyplane_orchestration.report")]


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has the pages as a Flask blueprint")
def test_airflow_3_gets_no_blueprint() -> None:
    """It would load Flask for it."""
    assert SkyplanePlugin().flask_blueprints == []
    (app,) = SkyplanePlugin().fastapi_apps
    assert app["url_prefix"] == "/skyplane"
