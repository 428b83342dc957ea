"""A login to one host over ssh, and requests to the script that it runs there.

Only a host whose key is known is talked to: without that, anybody between could take its place.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
import shlex
import socket
import threading
from collections import deque
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import paramiko

from skyplane_orchestration.errors import ConfigurationInvalid, GatewayUnreachable, NotAuthorised
from skyplane_orchestration.provision.ssh.options import SshHost

#: Pythons that wait for the next request.
_MOST_IDLE: Final = 2
#: What `host_script` begins its answers with.
_ANSWER: Final = "skyplane "
_MOST_LAST_WORDS: Final = 500
#: Paramiko logs each login, and each failure with a traceback. Errors here say it once.
_LOG_CHANNEL: Final = "skyplane_orchestration.paramiko"
logging.getLogger(_LOG_CHANNEL).setLevel(logging.CRITICAL)

#: What the Python of a host runs.
_HOST_SOURCE: Final = (
    files("skyplane_orchestration.provision.ssh").joinpath("host_script.py").read_text("utf-8")
    + "\nmain()\n"
)


class _UnknownHostKey(paramiko.SSHException):
    """The host is not known."""


class _RejectPolicy(paramiko.MissingHostKeyPolicy):
    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise _UnknownHostKey(f"{key.get_name()} {key.fingerprint}")


def _private_key(host: SshHost) -> paramiko.PKey | None:
    """The key that the host comes with. Raises ConfigurationInvalid."""
    if not host.private_key:
        return None
    # A form of a connection may lose the last line break, and parsers want it.
    text = host.private_key.strip() + "\n"
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        # The classes refuse keys of each other with errors of several kinds.
        with contextlib.suppress(paramiko.SSHException, ValueError):
            return kind.from_private_key(io.StringIO(text), password=host.passphrase or None)
    raise ConfigurationInvalid(
        f"private_key of host {host.name} cannot be read; it must be a whole RSA, ECDSA or Ed25519"
        " key with its first and last line, and private_key_passphrase must fit"
    )


class HostSession:
    """A login to one host, for requests to `host_script`.

    Raises, here and in every method:
        NotAuthorised: the host's key is not known or has changed, or the login is refused.
        ConfigurationInvalid: a file is missing, or the host has no suitable Python.
        GatewayUnreachable: the host does not answer.
    """

    def __init__(self, host: SshHost, timeout_s: float) -> None:
        self._host = host
        self._timeout_s = timeout_s
        # An account may have ten sessions of a login at once, by sshd's MaxSessions.
        self._slots = threading.BoundedSemaphore(6)
        self._idle: deque[paramiko.Channel] = deque()
        self._client = paramiko.SSHClient()
        self._client.set_log_channel(_LOG_CHANNEL)
        try:
            self._log_in(timeout_s)
        except BaseException:
            self._client.close()
            raise

    def close(self) -> None:
        self._client.close()

    @property
    def is_open(self) -> bool:
        transport = self._client.get_transport()
        return transport is not None and transport.is_active()

    def ask(self, verb: str, archive: bytes = b"", *, timeout_s: float, **request: Any) -> Any:
        """The value of a verb of `host_script`. Raises OSError if the host refuses it."""
        with self._slots, contextlib.ExitStack() as unless_kept:
            channel = unless_kept.enter_context(self._begun(verb, archive, request))
            channel.settimeout(timeout_s)
            answer = self._answer(channel)
            if len(self._idle) < _MOST_IDLE:
                unless_kept.pop_all()
                self._idle.append(channel)
        if "error" in answer:
            number, reason = answer["error"]
            raise OSError(number, f"{reason} (on host {self._host.name})")
        return answer["value"]

    def _begun(self, verb: str, archive: bytes, request: dict[str, Any]) -> paramiko.Channel:
        """A Python of the host that has got a request: an idle one, or one that starts."""
        try:
            channel = self._idle_python() or self._new_python()
            channel.settimeout(self._timeout_s)
            # A Python that cannot be run has closed it; `_answer` finds what was said.
            with contextlib.suppress(OSError):
                channel.sendall(json.dumps({"verb": verb, **request}).encode() + b"\n" + archive)
            return channel
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._unreachable(error) from error

    def _idle_python(self) -> paramiko.Channel | None:
        with contextlib.suppress(IndexError):
            while True:
                channel = self._idle.popleft()
                if not channel.eof_received:
                    return channel
                channel.close()
        return None

    def _new_python(self) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None:
            raise EOFError
        channel = transport.open_session(timeout=self._timeout_s)
        channel.settimeout(self._timeout_s)
        words = (self._host.interpreter, "-I", "-S", "-c", _HOST_SOURCE)
        channel.exec_command(f"exec {shlex.join(words)}")
        return channel

    def _answer(self, channel: paramiko.Channel) -> dict[str, Any]:
        answers = channel.makefile("r")
        try:
            line = answers.readline()
            # A login may print something before.
            while line and not line.startswith(_ANSWER):
                line = answers.readline()
        except (OSError, paramiko.SSHException) as error:
            raise self._unreachable(error) from error
        if not line:
            if not self.is_open:
                raise self._unreachable("the session has ended")
            said = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
            raise ConfigurationInvalid(
                f"{self._host.interpreter} cannot be run on host {self._host.name}:"
                f" {said[-_MOST_LAST_WORDS:] or 'it says nothing'}; name its Python 3.11 or later"
                " as its python"
            )
        answer: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
        return answer

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
        transport.set_keepalive(30)

    def _load_host_keys(self) -> None:
        host = self._host
        if host.host_key:
            kind, text = host.host_key.split()[:2]
            try:
                key = paramiko.PKey.from_type_string(kind, base64.b64decode(text, validate=True))
            except (paramiko.SSHException, ValueError) as error:
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
