"""A real API server with its controllers and its etcd, on this machine and without nodes."""

from __future__ import annotations

import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.faults.go_programs import running
from tests.ports import free_port
from tests.provision.kubernetes.programs import API_SERVER, CONTROLLER_MANAGER, ETCD, program

_START_S: Final = 60.0
_HOST: Final = "127.0.0.1"
#: Those that Jobs, their Pods and quotas need. There are no nodes to look after.
_CONTROLLERS: Final = (
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "ttl-after-finished-controller",
)
#: Who provisions; a Role says what it may.
USER: Final = "orchestrator"
_ADMIN: Final = "admin"


@dataclass(frozen=True)
class Cluster:
    """See the module.

    Args:
        url: of the API server.
        folder: has the kubeconfig file, whose contexts are the users.
        tokens: user -> token.
    """

    url: str
    folder: Path
    tokens: Mapping[str, str]

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def call(self, method: str, path: str, body: object = None, user: str = _ADMIN) -> Any:
        """The answer to a request; None for something that is not there."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.call("GET", path) or {}).get("items", [])
        return found

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "apiserver.crt"))

    def make_namespace(self, name: str) -> None:
        """With the account that Pods run as by default."""
        if self.call("GET", f"/api/v1/namespaces/{name}") is None:
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        wait_until(
            lambda: self.call("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"),
            f"an account in {name}",
        )


def wait_until(look: Any, what: str, within_s: float = 30.0) -> Any:
    """What `look` finds, once it is true."""
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"there is no {what} after {within_s:g} s")
        time.sleep(0.02)
    return found


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Raises Unavailable: its programs are not here."""
    etcd, server, manager = map(program, (ETCD, API_SERVER, CONTROLLER_MANAGER))
    tokens = {user: secrets.token_hex(16) for user in (_ADMIN, USER)}
    _write_key(folder / "accounts.pem")
    groups = {_ADMIN: "system:masters", USER: "people"}
    (folder / "tokens.csv").write_text(
        "".join(f'{token},{user},{user},"{groups[user]}"\n' for user, token in tokens.items())
    )
    store, peer, port = (free_port() for _ in range(3))
    made = Cluster(f"https://{_HOST}:{port}", folder, tokens)
    with ExitStack() as stack:
        urls = f"http://{_HOST}:{store}"
        peers = f"http://{_HOST}:{peer}"
        words = [
            *(str(etcd), "--data-dir", str(folder / "etcd")),
            *("--listen-client-urls", urls, "--advertise-client-urls", urls),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        ]
        stack.enter_context(running(words, store, folder / "etcd.log", {}))
        words = [
            *(str(server), "--etcd-servers", urls, "--secure-port", str(port)),
            *("--bind-address", _HOST, "--advertise-address", _HOST, "--cert-dir", str(folder)),
            *("--token-auth-file", str(folder / "tokens.csv"), "--authorization-mode", "RBAC"),
            *("--service-account-key-file", str(folder / "accounts.pem")),
            *("--service-account-signing-key-file", str(folder / "accounts.pem")),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-cluster-ip-range", "10.96.0.0/16"),
            *("--kubelet-preferred-address-types", "InternalIP"),
            *("--endpoint-reconciler-type", "none"),
        ]
        stack.enter_context(running(words, port, folder / "apiserver.log", {}))
        _write_kubeconfig(made)
        wait_until(lambda: _is_ready(made), "API server", _START_S)
        words = [
            *(str(manager), "--kubeconfig", str(made.kubeconfig), "--leader-elect=false"),
            *("--service-account-private-key-file", str(folder / "accounts.pem")),
            f"--controllers={','.join(_CONTROLLERS)}",
            *("--secure-port", str(other := free_port()), "--bind-address", _HOST),
        ]
        stack.enter_context(running(words, other, folder / "manager.log", {}))
        yield made


def _is_ready(made: Cluster) -> bool:
    try:
        made.call("GET", "/api/v1/namespaces/default")
    except (OSError, AssertionError):
        return False
    return True


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _write_kubeconfig(made: Cluster) -> None:
    one = {"server": made.url, "certificate-authority": str(made.folder / "apiserver.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": one}],
        "users": [{"name": user, "user": {"token": token}} for user, token in made.tokens.items()],
        "contexts": [
            {"name": user, "context": {"cluster": "test", "user": user}} for user in made.tokens
        ],
        "current-context": _ADMIN,
    }
    made.kubeconfig.write_text(yaml.safe_dump(document))


def log_of(made: Cluster, name: str) -> str:
    return (made.folder / f"{name}.log").read_text()[-3000:]
