"""One round of the bench of Dagster's forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.dagster_forms import FORMS, seconds_of


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_form_copies_and_is_timed(form: str, tmp_path: Path) -> None:
    assert seconds_of(form, tmp_path) > 0
