"""What a report about a real cloud says: figures and codes, and nothing that names an account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Of a result, by names of its document. All else stays on this machine.
_FIGURES: Final = (
    "copied",
    "failed",
    "copied_bytes",
    "seconds",
    "goodput_gbps",
    "planned_gbps",
    "estimated_usd",
    "encrypted",
    "gateways",
)
_SECRET: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|SAS|CONNECTION_STRING|ACCOUNT|PROFILE|PROJECT|ID$"
)
#: Numbers of accounts, UUIDs, addresses, names of resources and hosts, and long words with digits.
_NAMES: Final = re.compile(
    r"\barn:\S+|\b[\w.+-]+@[\w.-]+|\b\d{12}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[a-z]{1,8}-[0-9a-f]{8,17}\b|\b[a-z0-9]+://[^\s'\"]+"
    r"|/?\b(?:subscriptions|projects)/\S+"
    r"|(?<![\w/+=])(?=[a-zA-Z_/+=]*\d)[\w/+=]{20,}(?![\w/+=])"
)
_SHORTEST_SECRET: Final = 4


@dataclass(frozen=True)
class Redactor:
    """Hides known words, and all that looks like a name, in every text of a report."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, environment: Mapping[str, str], prefixes: str) -> Redactor:
        """Words: what the environment keeps secret, and each part of the prefixes."""
        secret = [value for name, value in environment.items() if _SECRET.search(name)]
        places = [part for part in re.split(r"[\s/:]+", prefixes) if part not in ("s3", "gs", "az")]
        words = {word for word in (*secret, *places) if len(word) >= _SHORTEST_SECRET}
        return cls(tuple(sorted(words, key=len, reverse=True)))

    def redacted(self, value: Any) -> Any:
        """The same document, in whose texts each such word is `***`."""
        if isinstance(value, dict):
            return {name: self.redacted(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.redacted(one) for one in value]
        if not isinstance(value, str):
            return value
        for word in self.words:
            value = value.replace(word, "***")
        return _NAMES.sub("***", value)


def outcome_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the report says of a command's JSON: figures, costs, rates of edges, and the error."""
    result = answer.get("result", answer)
    found = {name: result[name] for name in _FIGURES if name in result}
    if "cost" in result:
        sums = {name: usd for name, usd in result["cost"].items() if isinstance(usd, float)}
        found["cost"] = {name: round(usd, 6) for name, usd in sums.items()}
    error = answer.get("error")
    if isinstance(error, Mapping):
        found["error"] = {"code": error["code"], "message": error["message"]}
    # The doctor, which fails by its checks.
    if refused := [check for check in answer.get("checks", ()) if check["state"] == "fail"]:
        found["refused"] = [f"{check['name']}: {check['detail']}" for check in refused]
    return found
