"""The resume handle of a failed transfer."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.common.schema import Document, parsed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.units import SECONDS_PER_HOUR

SCHEMA_VERSION: Final = 1

#: How long a failed transfer can be resumed.
RESUME_TTL_S: Final = 24 * SECONDS_PER_HOUR

#: The start of every handle.
PREFIX: Final = "skyplane-resume:"

#: Longest text: a result has to fit into an XCom.
MAX_TEXT_BYTES: Final = 8_000

#: Largest document that is unpacked.
_MAX_DOCUMENT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ResumeHandle(Document, what="a resume handle", version=SCHEMA_VERSION):
    """Identifies a failed transfer. Holds no secret.

    Args:
        job, plan: of the transfer.
        fleet_key, generation, deployment: of its fleet, which is brought up again if necessary.
        transfer_key: of the transfer and its journal.
        epoch: the last epoch.
        expires_unix_s: wall time after which a sweep may have removed its uploads.
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
        """Raises ConfigurationInvalid when it has expired."""
        if now_unix_s >= self.expires_unix_s:
            hours = (now_unix_s - self.expires_unix_s) / SECONDS_PER_HOUR
            raise ConfigurationInvalid(
                f"the resume handle expired {hours:.1f} h ago, and what the transfer had open may "
                "have been removed; run it again (conflict replace-if-different leaves out "
                "what is there already)"
            )

    def with_budget(self, max_job_usd: float) -> ResumeHandle:
        """The same transfer with another budget.

        Raises ConfigurationInvalid for an invalid price.
        """
        policy = replace(self.job.policy, max_job_usd=max_job_usd)
        return replace(self, job=replace(self.job, policy=policy))

    def to_text(self) -> str:
        """The handle as one word."""
        text = json.dumps(self.to_dict(), separators=(",", ":"))
        return PREFIX + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> ResumeHandle:
        """Raises ConfigurationInvalid for an invalid handle."""
        word = text.strip()
        if not word.startswith(PREFIX):
            raise ConfigurationInvalid(
                f"{word[:40]!r} is not a resume handle; a handle starts with {PREFIX!r} and is "
                "in the result of a failed transfer"
            )
        try:
            packed = base64.b64decode(word.removeprefix(PREFIX), altchars=b"-_", validate=True)
            unpacker = zlib.decompressobj()
            body = unpacker.decompress(packed, _MAX_DOCUMENT_BYTES)
            if not unpacker.eof:
                raise ValueError("it is cut off, or too long")
            document = parsed(body, "it")
        except (binascii.Error, zlib.error, ValueError, ConfigurationInvalid) as error:
            raise ConfigurationInvalid(f"the resume handle is damaged: {error}") from error
        return cls.from_dict(document)
