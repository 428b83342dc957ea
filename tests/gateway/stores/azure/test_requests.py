from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.stores.azure.requests import from_azure, to_azure

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("owner", "owner"),
        ("my_name", "my_name"),
        ("with-dash", "with_2d_dash"),
        ("a.b", "a_2e_b"),
        ("1st", "_31_st"),
        ("_ab-", "_5f_ab_2d_"),
        ("a_2d_b", "a_5f_2d_b"),
        ("\u00e9", "_c3__a9_"),
    ],
)
def test_names_are_written_as_identifiers(name: str, kept: str) -> None:
    assert to_azure(name) == kept
    assert from_azure(kept) == name


#: Many underscores, digits of codes and hyphens, so that names look like codes.
_TRICKY = st.text("_-2d5fa1.", min_size=1)


@given(_TRICKY | st.text(min_size=1).filter(lambda text: text == text.lower()))
def test_every_name_comes_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    kept = to_azure(name)
    assert _IDENTIFIER.fullmatch(kept)
    assert from_azure(kept) == name


def test_names_of_other_programs_are_lower_case() -> None:
    assert from_azure("Owner_ff_") == "owner_ff_"
