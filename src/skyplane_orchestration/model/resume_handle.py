"""The resume handle: what a failed transfer leaves to go on by."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from skyplane_gateway.schema import decode
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.units import SECONDS_PER_HOUR

SCHEMA_VERSION: Final = 1

#: How long a failed transfer can be resumed.
RESUME_TTL_S: Final = 24 * SECONDS_PER_HOUR

#: What the text of a handle starts with.
PREFIX: Final = "skyplane-resume:"

#: Longest text: a result has to fit into an XCom.
MAX_TEXT_BYTES: Final = 8_000

#: A document that unpacks to more is none of ours.
_MAX_DOCUMENT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ResumeHandle:
    """Names a transfer that has begun. Holds no secret.

    Args:
        job, plan: what is to be moved, and by which fleet.
        fleet_key, generation, deployment: the fleet's; it is brought up again if need be.
        transfer_key: the transfer's, and so its journal's.
        epoch: the last one that was begun.
        expires_unix_s: wall time after which its uploads may have been cleared away.
    """

    job: TransferJob
    plan: TransferPlan
    fleet_key: str
    generation: int
    deployment: str
    transfer_key: str
    epoch: int
    expires_unix_s: float

    def require_live(self, now_unix_s: float) -> None:
        """Raises ConfigurationInvalid when it is too old."""
        if now_unix_s >= self.expires_unix_s:
            hours = (now_unix_s - self.expires_unix_s) / SECONDS_PER_HOUR
            raise ConfigurationInvalid(
                f"the resume handle expired {hours:.1f} h ago, and what the transfer had open may "
                "have been cleared away; run it again (conflict replace-if-different leaves out "
                "what is there already)"
            )

    def with_budget(self, max_job_usd: float) -> ResumeHandle:
        """The same transfer, which may cost so much from now on.

        Raises ConfigurationInvalid for what is no price.
        """
        policy = replace(self.job.policy, max_job_usd=max_job_usd)
        return replace(self, job=replace(self.job, policy=policy))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "job": self.job.to_dict(),
            "plan": self.plan.to_dict(),
            "fleet_key": self.fleet_key,
            "generation": self.generation,
            "deployment": self.deployment,
            "transfer_key": self.transfer_key,
            "epoch": self.epoch,
            "expires_unix_s": self.expires_unix_s,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ResumeHandle:
        """Raises ConfigurationInvalid for another schema version or a broken document."""
        what = "a resume handle"
        fields = decode(_Fields, data, what, version=SCHEMA_VERSION)
        return cls(
            TransferJob.from_dict(fields.job),
            TransferPlan.from_dict(fields.plan),
            fields.fleet_key,
            fields.generation,
            fields.deployment,
            fields.transfer_key,
            fields.epoch,
            fields.expires_unix_s,
        )

    def to_text(self) -> str:
        """One word, for command lines and results."""
        text = json.dumps(self.to_dict(), separators=(",", ":"))
        return PREFIX + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> ResumeHandle:
        """Raises ConfigurationInvalid for what is no handle."""
        word = text.strip()
        if not word.startswith(PREFIX):
            raise ConfigurationInvalid(
                f"{word[:40]!r} is no resume handle; one starts with {PREFIX!r} and stands in "
                "the result of a failed transfer"
            )
        try:
            packed = base64.b64decode(word.removeprefix(PREFIX), altchars=b"-_", validate=True)
            unpacker = zlib.decompressobj()
            body = unpacker.decompress(packed, _MAX_DOCUMENT_BYTES)
            if not unpacker.eof:
                raise ValueError("it is cut off, or too long")
            document = json.loads(body)
        except (binascii.Error, zlib.error, ValueError) as error:
            raise ConfigurationInvalid(f"the resume handle is damaged: {error}") from error
        return cls.from_dict(document)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The document, with its own documents as they are."""

    job: Mapping[str, Any]
    plan: Mapping[str, Any]
    fleet_key: str
    generation: int
    deployment: str
    transfer_key: str
    epoch: int
    expires_unix_s: float
