"""What the refusals of a service mean: by code, then by status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from skyplane_gateway.errors import StoreError


@dataclass(frozen=True, slots=True)
class Meaning:
    """Codes (separated by spaces) and statuses that have one meaning."""

    error: type[StoreError]
    advice: str
    codes: str = ""
    statuses: tuple[int, ...] = ()
    is_permanent: bool | None = None

    def raised(self, said: str, words: str = "") -> StoreError:
        """The error; `said` names the request and the code, `words` are the service's own."""
        return self.error(f"{said}; {self.advice}{words}", is_permanent=self.is_permanent)


def meaning_of(meanings: Iterable[Meaning], code: str, status: int) -> Meaning | None:
    """A code decides before a status does; None for a refusal of another kind."""
    of_status = None
    for meaning in meanings:
        if code in meaning.codes.split():
            return meaning
        if of_status is None and status in meaning.statuses:
            of_status = meaning
    return of_status


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` (RFC 9110, 10.2.3): seconds, or a date, compared with the answer's `Date`.

    Names of headers are in lower case.
    """
    text = headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    until, now = unix_s(text), unix_s(headers.get("date", ""))
    return None if until is None or now is None else max(0.0, until - now)


def unix_s(date: str) -> float | None:
    """Of an HTTP date; None for another text."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
