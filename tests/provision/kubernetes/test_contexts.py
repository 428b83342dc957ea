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


def write_kubeconfig(file: Path, cluster: dict[str, str], plugin: str) -> None:
    """With the context `production`, whose credentials a shell script prints."""
    program = {"apiVersion": _KIND, "command": "sh", "args": ["-c", plugin]}
    named: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": cluster},
        "users": {"user": {"exec": program}},
        "contexts": {"context": {"cluster": "production", "user": "production"}},
    }
    lists = {kind: [{"name": "production", **value}] for kind, value in named.items()}
    file.write_text(yaml.safe_dump({"current-context": "production", **lists}))


def credential(token: str) -> str:
    """What a plugin prints."""
    return json.dumps({"apiVersion": _KIND, "kind": "ExecCredential", "status": {"token": token}})


def test_a_plugin_that_waits_for_an_answer_holds_nothing_up_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, runs, file = tmp_path / "answer", tmp_path / "runs", tmp_path / "config"
    os.mkfifo(answer)
    write_kubeconfig(file, {"server": "https://127.0.0.1:1"}, f"echo run >> {runs}; cat {answer}")
    api = ClusterApi(replace(OPTIONS, kubeconfig=str(file)), SYSTEM_CLOCK)
    module = "skyplane_orchestration.provision.kubernetes.client"
    monkeypatch.setattr(f"{module}._LOADED_WITHIN_S", 0.05)
    for _ in range(2):
        with pytest.raises(CloudUnavailable, match="the context production cannot be used"):
            api._dynamic("production")
    # Others do not wait for it.
    for _ in range(2):
        with pytest.raises(ConfigurationInvalid, match="the context staging cannot be used"):
            api._dynamic("staging")
    monkeypatch.setattr(f"{module}._LOADED_WITHIN_S", 60.0)
    answer.write_text(credential("t"))
    assert list(api._dynamic("production").client.configuration.api_key.values()) == ["Bearer t"]
    assert runs.read_text() == "run\n"


def test_a_plugin_that_fails_is_an_error_of_the_context(tmp_path: Path) -> None:
    """Without credentials the API server would take us for somebody without permissions."""
    file = tmp_path / "config"
    write_kubeconfig(file, {"server": "https://127.0.0.1:1"}, "echo log in again >&2; exit 1")
    api = ClusterApi(replace(OPTIONS, kubeconfig=str(file)), SYSTEM_CLOCK)
    with pytest.raises(ConfigurationInvalid, match="its plugin gives none"):
        api._dynamic("production")
