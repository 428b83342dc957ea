"""Contexts of a kubeconfig whose plugin gives no credentials."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.provision.kubernetes.test_manifests import OPTIONS

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.kubernetes.client import ClusterApi

_KIND: Final = "client.authentication.k8s.io/v1"


def test_a_plugin_that_waits_for_an_answer_holds_nothing_up_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, runs, file = tmp_path / "answer", tmp_path / "runs", tmp_path / "config"
    os.mkfifo(answer)
    plugin = {
        "apiVersion": _KIND,
        "command": "sh",
        "args": ["-c", f"echo run >> {runs}; cat {answer}"],
    }
    named: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": {"server": "https://127.0.0.1:1"}},
        "users": {"user": {"exec": plugin}},
        "contexts": {"context": {"cluster": "production", "user": "production"}},
    }
    lists = {kind: [{"name": "production", **value}] for kind, value in named.items()}
    file.write_text(yaml.safe_dump({"current-context": "production", **lists}))
    api = ClusterApi(replace(OPTIONS, kubeconfig=str(file)), SYSTEM_CLOCK)
    module = "skyplane_orchestration.provision.kubernetes.client"
    monkeypatch.setattr(f"{module}._LOADED_WITHIN_S", 0.05)
    for _ in range(2):
        with pytest.raises(CloudUnavailable, match="the context production cannot be used"):
            api._configuration("production")
    # Others do not wait for it.
    for _ in range(2):
        with pytest.raises(ConfigurationInvalid, match="the context staging cannot be used"):
            api._configuration("staging")
    monkeypatch.setattr(f"{module}._LOADED_WITHIN_S", 60.0)
    credential = {"apiVersion": _KIND, "kind": "ExecCredential", "status": {"token": "t"}}
    answer.write_text(json.dumps(credential))
    assert api._configuration("production").api_key == {"BearerToken": "Bearer t"}
    assert runs.read_text() == "run\n"
