"""The types of fields whose texts Dagster renders."""

# No postponed annotations: Dagster reads those of the fields.

from functools import partial
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, BeforeValidator, Strict, TypeAdapter

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.text_values import from_text


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
