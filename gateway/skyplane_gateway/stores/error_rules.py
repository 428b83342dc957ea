"""What the refusals of a service mean: by code, then by status."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from itertools import chain
from typing import Any, Final

from skyplane_gateway.common.errors import (
    CredentialsExpired,
    PermissionDenied,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)

#: S3 allows 15 minutes, tokens of Google 5.
_MOST_SECONDS_OFF: Final = 240.0
#: OpenSSL's codes for certificates that may be good at another time.
_NOT_NOW: Final = {9: "is not valid yet", 10: "has expired"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """Codes (separated by spaces) and statuses that have one meaning."""

    error: type[StoreError]
    advice: str
    codes: str = ""
    statuses: tuple[int, ...] = ()
    is_permanent: bool | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no success.

    Attributes:
        headers: names in lower case.
        code: the service's own, perhaps empty.
        words: the service's own, perhaps empty; they name a missing permission.
    """

    status: int
    headers: Mapping[str, str]
    code: str = ""
    words: str = ""

    def error(
        self, meanings: Sequence[Meaning], said: str, *, is_throttling: bool | None = None
    ) -> StoreError:
        """The leaf of the error tree.

        Args:
            said: names the request and the code.
            is_throttling: whether the service asks for fewer requests; None: its status tells.
        """
        if self.status in (429, 503) if is_throttling is None else is_throttling:
            pause_s = retry_after_s(self.headers)
            return Throttled(f"{said}; the store asks for fewer requests", retry_after_s=pause_s)
        words = f" ({self.words})" if self.words else ""
        # A code decides before a status does.
        of_code = (one for one in meanings if self.code in one.codes.split())
        of_status = (one for one in meanings if self.status in one.statuses)
        if meaning := next(chain(of_code, of_status), None):
            more = words if meaning.error is PermissionDenied else ""
            if meaning.error in (Unauthenticated, CredentialsExpired):
                more = clock_hint(self.headers)
            return meaning.error(
                f"{said}; {meaning.advice}{more}", is_permanent=meaning.is_permanent
            )
        if self.status >= 500:
            return StoreUnavailable(f"{said}; try again")
        # A 200 with an error inside is the store's fault; a 4xx is the request's.
        return StoreError(
            f"{said}; the store refuses this request{words}", is_permanent=400 <= self.status < 500
        )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` (RFC 9110, 10.2.3): seconds, or a date, compared with the answer's `Date`.

    Names of headers are in lower case.
    """
    text = headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    until, now = unix_s(text), unix_s(headers.get("date", ""))
    return None if until is None or now is None else max(0.0, until - now)


def clock_hint(headers: Mapping[str, str]) -> str:
    """For a refusal of credentials: how far this machine's clock is off, if it is minutes."""
    told_s = unix_s(headers.get("date", ""))
    ahead_s = 0.0 if told_s is None else time.time() - told_s
    if abs(ahead_s) < _MOST_SECONDS_OFF:
        return ""
    side = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"; the clock of this machine is {abs(ahead_s):.0f} s {side} the store's: set it, and the "
        "credentials may be good"
    )


def unreachable(what: str, error: BaseException, checked: str = "the endpoint") -> StoreError:
    """The error for a request without an answer; `checked` is what a person has to look at."""
    return StoreUnavailable(
        f"{what}: the endpoint cannot be reached or does not answer ({type(error).__name__}); "
        f"check {checked} and the network"
    )


def not_trusted(what: str, error: BaseException, bundle: str = "REQUESTS_CA_BUNDLE") -> StoreError:
    """The error for the certificate of an endpoint that was not accepted.

    Args:
        error: of any library; the one of OpenSSL is its cause.
        bundle: the variable that names the CA bundle.
    """
    return StoreUnavailable(f"{what}: {_why_no_tls(error, bundle)}", is_permanent=True)


def _why_no_tls(error: BaseException, bundle: str) -> str:
    causes: list[BaseException | None] = [error]
    while causes:
        one = causes.pop()
        if isinstance(one, ssl.SSLCertVerificationError) and one.verify_code in _NOT_NOW:
            return (
                f"the endpoint's certificate {_NOT_NOW[one.verify_code]} by this machine's clock, "
                f"which says {formatdate(usegmt=True)}: set the clock, or have the certificate "
                "renewed"
            )
        if one is not None:
            named = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
            causes += [more for more in named if isinstance(more, BaseException)]
    return (
        "the endpoint's certificate was not accepted; check the endpoint's name and the CA bundle "
        f"({bundle})"
    )


def unix_s(date: str | None) -> float | None:
    """Of an HTTP date; None for another text, and for none."""
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (OverflowError, ValueError):
        return None


def mapping(
    translate: Callable[[Any, str], SkyplaneError], *kinds: type[Exception]
) -> Callable[[str], AbstractContextManager[None]]:
    """Translates such exceptions raised inside; its text begins the message."""

    @contextmanager
    def mapped(what: str) -> Iterator[None]:
        try:
            yield
        except kinds as error:
            raise translate(error, what) from error

    return mapped
