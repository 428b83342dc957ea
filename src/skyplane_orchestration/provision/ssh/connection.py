"""An ssh session with one host, and the agent that it runs there.

Only a host whose key is known is talked to: without that, anybody between could take its place.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import logging
import os
import shlex
import socket
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import paramiko

from skyplane_orchestration.errors import ConfigurationInvalid, GatewayUnreachable, NotAuthorised
from skyplane_orchestration.provision.ssh.agent import READY
from skyplane_orchestration.provision.ssh.hosts import SshHost

#: An agent answers within this time; a slow disk may delay it.
_ANSWER_TIMEOUT_S: Final = 60.0
_KEEPALIVE_S: Final = 30
_OLDEST_PYTHON: Final = [3, 11]
#: What a login prints before the agent starts.
_MOST_GREETING_LINES: Final = 200
_MOST_LAST_WORDS: Final = 500
#: Paramiko logs each login, and each failure with a traceback. Errors here say it once.
_LOG_CHANNEL: Final = "skyplane_orchestration.paramiko"
logging.getLogger(_LOG_CHANNEL).setLevel(logging.CRITICAL)

_MARK: Final = "skyplane-agent "

#: Source files that the agent consists of, as (package, file, module).
_MODULES: Final = tuple(
    (f"skyplane_orchestration.provision.{package}", module)
    for package, module in (
        ("local", "machine"),
        ("ssh", "programs"),
        ("ssh", "agent"),
    )
)
_KEY_CLASSES: Final = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)

#: Says the version of Python first, in words that any version understands.
BOOTSTRAP: Final = f"""
import json, sys, types
print({_MARK!r} + json.dumps(list(sys.version_info[:2])))
sys.stdout.flush()
for name, text in json.loads(sys.stdin.buffer.readline().decode()):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.serve()
"""


class _UnknownHostKey(paramiko.SSHException):
    """The host is not known."""


class _RejectPolicy(paramiko.MissingHostKeyPolicy):
    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise _UnknownHostKey(f"{key.get_name()} {key.fingerprint}")


def agent_sources() -> list[tuple[str, str]]:
    """The modules of the agent with their source, each after those that it imports."""
    return [
        (f"{package}.{module}", files(package).joinpath(f"{module}.py").read_text("utf-8"))
        for package, module in _MODULES
    ]


def _private_key(host: SshHost) -> paramiko.PKey | None:
    """The key that the host comes with. Raises ConfigurationInvalid."""
    if not host.private_key:
        return None
    # A form of a connection may lose the last line break, and parsers want it.
    text = host.private_key.strip() + "\n"
    for kind in _KEY_CLASSES:
        # The classes refuse keys of each other with errors of several kinds.
        with contextlib.suppress(paramiko.SSHException, ValueError):
            return kind.from_private_key(io.StringIO(text), password=host.passphrase or None)
    raise ConfigurationInvalid(
        f"private_key of host {host.name} cannot be read; it must be a whole RSA, ECDSA or Ed25519"
        " key with its first and last line, and private_key_passphrase must fit"
    )


class AgentSession:
    """A session with the agent of one host; `close` ends both.

    Raises, here and in `call`:
        NotAuthorised: the host's key is not known or has changed, or the login is refused.
        ConfigurationInvalid: a file is missing, or the host has no suitable Python.
        GatewayUnreachable: the host does not answer.
    """

    def __init__(self, host: SshHost, timeout_s: float) -> None:
        self._host = host
        self._client = paramiko.SSHClient()
        self._client.set_log_channel(_LOG_CHANNEL)
        try:
            self._log_in(timeout_s)
            self._start_agent(timeout_s)
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        self._client.close()

    def call(
        self, verb: str, paths: tuple[str, ...], values: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """The value of a verb of the agent. Raises OSError if the host refuses it."""
        request = {"verb": verb, "paths": paths, "values": values, "options": options}
        try:
            self._channel.sendall((json.dumps(request) + "\n").encode())
            line = self._answers.readline()
        except (OSError, paramiko.SSHException) as error:
            raise self._unreachable(error) from error
        if not line:
            raise self._unreachable(f"the session has ended; {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            number, reason, file = answer["error"]
            raise OSError(number, f"{reason} (on host {self._host.name})", file)
        return answer["value"]

    # -- the login

    def _log_in(self, timeout_s: float) -> None:
        host = self._host
        self._load_host_keys()
        self._client.set_missing_host_key_policy(_RejectPolicy())
        key_file = str(Path(host.key_file).expanduser()) if host.key_file else None
        if key_file is not None and not Path(key_file).is_file():
            raise ConfigurationInvalid(f"key_file {key_file} of host {host.name} does not exist")
        key = _private_key(host)
        has_no_key = key is None and key_file is None
        try:
            self._client.connect(
                host.address,
                host.port,
                username=host.user or None,
                pkey=key,
                key_filename=key_file,
                passphrase=host.passphrase or None,
                look_for_keys=has_no_key,
                allow_agent=has_no_key,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
            )
        except _UnknownHostKey as error:
            raise NotAuthorised(
                f"the key of host {host.name} is not known: it says {error}; get it with"
                f" `ssh-keyscan -p {host.port} {host.address}`, compare it with the machine's own"
                " `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`, and add it to known_hosts"
            ) from error
        except paramiko.BadHostKeyException as error:
            raise NotAuthorised(
                f"host {host.name} has another key than the known one: it says"
                f" {error.key.get_name()} {error.key.fingerprint}; another machine may answer in"
                " its place. If it was set up again, compare the new key with the machine's own,"
                " and replace the old one in known_hosts or host_key"
            ) from error
        except paramiko.AuthenticationException as error:
            raise NotAuthorised(
                f"host {host.name} refuses the login: {error}; name its user and a key_file"
                " without a passphrase, or add the key to the ssh agent"
            ) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._unreachable(error) from error
        transport = self._client.get_transport()
        assert transport is not None
        transport.set_keepalive(_KEEPALIVE_S)

    def _load_host_keys(self) -> None:
        host = self._host
        if host.host_key:
            kind, text = host.host_key.split()[:2]
            try:
                key = paramiko.PKey.from_type_string(kind, base64.b64decode(text, validate=True))
            except (binascii.Error, paramiko.SSHException, ValueError) as error:
                raise ConfigurationInvalid(
                    f"host_key of host {host.name} cannot be read: {error}; it must be a type and"
                    " a key, as `ssh-keyscan` prints them behind the address"
                ) from error
            self._client.get_host_keys().add(host.known_name, kind, key)
            return
        given = Path(host.known_hosts).expanduser() if host.known_hosts else None
        try:
            if given is not None:
                self._client.load_host_keys(str(given))
            else:
                self._client.load_system_host_keys()
        except (OSError, paramiko.SSHException) as error:
            raise ConfigurationInvalid(
                f"known_hosts of host {host.name} cannot be read: {error}"
            ) from error

    # -- the agent

    def _start_agent(self, timeout_s: float) -> None:
        transport = self._client.get_transport()
        assert transport is not None
        try:
            self._channel = transport.open_session(timeout=timeout_s)
            self._channel.settimeout(max(timeout_s, _ANSWER_TIMEOUT_S))
            command = f"exec {shlex.quote(self._host.interpreter)} -c {shlex.quote(BOOTSTRAP)}"
            self._channel.exec_command(command)
            self._answers = self._channel.makefile("r")
            self._require_python()
            self._channel.sendall((json.dumps(agent_sources()) + "\n").encode())
            if json.loads(self._answers.readline() or "{}").get("value") != READY:
                raise self._unreachable(f"its agent does not start; {self._last_words()}")
        except (OSError, paramiko.SSHException) as error:
            raise self._unreachable(error) from error

    def _require_python(self) -> None:
        for _ in range(_MOST_GREETING_LINES):
            line = self._answers.readline()
            if line.startswith(_MARK):
                version = json.loads(line.removeprefix(_MARK))
                if version < _OLDEST_PYTHON:
                    raise ConfigurationInvalid(
                        f"{self._host.interpreter} on host {self._host.name} is Python"
                        f" {version[0]}.{version[1]}, and gateways need 3.11 or later; name"
                        " another one as its python"
                    )
                return
            if not line:
                break
        raise ConfigurationInvalid(
            f"{self._host.interpreter} cannot be run on host {self._host.name}:"
            f" {self._last_words()}; name its Python 3.11 or later as its python"
        )

    def _last_words(self) -> str:
        """What an ended agent has written to its standard error, at most a few lines."""
        said = self._channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        return said[-_MOST_LAST_WORDS:] or "it says nothing"

    def _unreachable(self, error: object) -> GatewayUnreachable:
        reason = error
        if isinstance(error, TimeoutError | socket.timeout):
            reason = "no answer in time"
        elif isinstance(error, OSError):
            # Names that cannot be looked up have numbers of their own.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or error
        return GatewayUnreachable(
            f"host {self._host.name} cannot be reached over ssh: {reason or 'it hung up'};"
            f" check that sshd answers on {self._host.address} port {self._host.port}"
        )
