"""`TransferModel`: one transfer of a `defs.yaml`."""

# No postponed annotations: Dagster reads those of the fields.

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, get_origin

import dagster as dg
from pydantic import BaseModel, BeforeValidator, Field, Strict, TypeAdapter, create_model

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.flat_job import flat_fields, flat_job
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.text_values import from_text, options_of


def _reads(kind: type) -> BeforeValidator:
    """Reads texts, as those of Airflow's templates; a template may make `1` of the text `1`."""
    return BeforeValidator(partial(from_text, kind, is_whole=True))


Flag = Annotated[bool, Strict(), _reads(bool)]
Whole = Annotated[int, Strict(), _reads(int)]
Number = Annotated[float, Strict(), _reads(float)]
#: Dagster 1.11.4 takes no annotated type inside another.
WholeByName = Annotated[
    dict[str, int], BeforeValidator(TypeAdapter(dict[str, Whole]).validate_python)
]


class Rendered(dg.Resolvable):
    """Refuses texts that are rendered to None: the field would silently have its default."""

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Any:
        made = super().resolve_from_model(context, model)
        for name, text in model:
            if isinstance(text, str) and getattr(made, name) is None:
                raise ConfigurationInvalid(
                    f"{name}: {text!r} is rendered to nothing; leave the field out for its default"
                )
        return made


_DESCRIPTIONS: Final = {
    "source_region": "Such as aws:eu-west-3.",
    "source_credential_ref": "Such as profile:NAME.",
    "objective": "Without another one: the least sum of bill and time, or the cheapest plan.",
    "value_of_time_usd_per_hour": "What an hour until the end is worth.",
    "min_throughput_gbps": "The cheapest plan at this rate or more.",
    "max_usd_per_gb": "The fastest plan at this price.",
    "max_cost_usd": "The fastest plan at this cost.",
    "deadline_s": "The cheapest plan that ends in this time.",
}
#: Type of a field of a job, or of its items -> that of its text.
_TYPES: Final[Mapping[Any, Any]] = {
    bool: Flag,
    int: Whole,
    float: Number,
    tuple: Sequence[str],
    Mapping: WholeByName,
}


def _field(name: str, hint: Any) -> Any:
    (kind,) = (one for one in options_of(hint) if one is not type(None))
    is_text_by_name = kind == Mapping[str, str]
    made = Mapping[str, str] if is_text_by_name else _TYPES.get(get_origin(kind) or kind, kind)
    return made | None, Field(None, description=_DESCRIPTIONS.get(name))


_Plain: Any = create_model(
    "_Plain",
    __base__=(dg.Model, Rendered),
    # The types of instances are by cloud, and so no plain value.
    **{
        name: _field(name, hint)
        for name, (hint, _) in flat_fields().items()
        if name != "instance_types"
    },
)


class TransferModel(_Plain):  # type: ignore[misc]
    """One transfer: the fields of `TransferJob`, with the plain names of the Airflow operators.

    A field that is not given has the default of `TransferJob`.
    """

    name: str = Field(description="Key of the asset, with / between its parts.")
    source_url: str = Field(
        description="Such as s3://bucket/prefix/; {partition_key} is replaced; see Partitions."
    )
    destination_url: str

    def job(self) -> TransferJob:
        """The job. Raises ConfigurationInvalid."""
        return flat_job({name: value for name, value in self if name != "name"})
