"""What is said about words of other tools names options and verbs that exist."""

from __future__ import annotations

import re

import pytest

from skyplane_orchestration.cli import other_tools
from skyplane_orchestration.cli.main import VERBS, build_parser

ADVICE = {**other_tools._OPTIONS, **other_tools._VERBS}
#: Lines of the verbs whose options other tools' users look for.
COMING: set[str] = set()
KNOWN = {"cp": "cp a b", "sync": "sync a b"}


@pytest.fixture(scope="module")
def options() -> set[str]:
    parsers = [build_parser(name).parse_args(line.split()).parser for name, line in KNOWN.items()]
    return {one for parser in parsers for one in parser._option_string_actions} | {"--version"}


@pytest.mark.parametrize("word", ADVICE)
def test_advice_names_what_exists(options: set[str], word: str) -> None:
    text = ADVICE[word]
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= options | COMING
    for verb in re.findall(r"skyplane-orch ([a-z]+)", text):
        assert verb in {*VERBS, *COMING}


def test_words_that_a_verb_has_need_no_advice() -> None:
    assert not set(other_tools._VERBS) & set(VERBS)


def test_what_other_tools_have_is_long_enough() -> None:
    assert len(ADVICE) > 150
