"""`DagsterSkyplaneTranslator`: which asset a transfer makes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import dagster as dg

from skyplane_gateway.common.schema import check
from skyplane_orchestration.dagster.placeholders import names_in
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location


@dataclass(frozen=True, slots=True)
class SkyplaneTranslatorData:
    """One transfer of `skyplane_assets`, by its name."""

    name: str
    job: TransferJob

    def __post_init__(self) -> None:
        check(self)


class DagsterSkyplaneTranslator:
    """Makes the asset of a transfer. Override `get_asset_spec` to change it:

    class Translator(DagsterSkyplaneTranslator):
        def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(group_name="replication")
    """

    def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
        """The asset of a transfer.

        Its key is the name, with `/` between its parts. It depends on an asset for the source:
        `s3://bucket/raw/orders/` is `s3/bucket/raw/orders`, without parts that contain
        a placeholder.

        Raises ConfigurationInvalid for a name that is no key.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*", data.name):
            raise ConfigurationInvalid(
                f"{data.name!r} in jobs is no asset key; use letters, digits, _ and -, and /"
                " between its parts"
            )
        job = data.job
        return dg.AssetSpec(
            key=dg.AssetKey.from_user_string(data.name),
            deps=[source_key(job.source)],
            description=description_of(job),
            metadata=definition_metadata(job),
            kinds=kinds_of(job),
        )


def description_of(job: TransferJob) -> str:
    return f"A copy of {job.source.url} at {job.destination.url}."


def definition_metadata(job: TransferJob) -> dict[str, str]:
    return {"dagster/uri": job.destination.url, "skyplane/source": job.source.url}


def kinds_of(job: TransferJob) -> set[str]:
    return {"skyplane", job.source.kind, job.destination.kind}


def source_key(location: Location) -> dg.AssetKey:
    """The key of an asset for a place: kind, bucket and prefix.

    Dagster makes names of inputs from keys, so characters that no name may have become `_`.
    """
    parts = (location.kind, *location.bucket.split("/"), *location.key.split("/"))
    kept = [part for part in parts if part and not names_in(part)]
    return dg.AssetKey([re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in kept])
