"""What is said about words of other tools names options and verbs that exist."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from skyplane_gateway.stores.options import OPTIONS
from skyplane_orchestration.cli import other_tools
from skyplane_orchestration.cli.main import VERBS, build_parser

ADVICE = {**other_tools._OPTIONS, **other_tools._VERBS}
KNOWN = {"cp": "cp a b", "sync": "sync a b", "ls": "ls a"}
#: Scheme -> options of its store, with their values; None for a text of its own.
STORE_OPTIONS: dict[str, dict[str, Sequence[str] | None]] = {
    scheme: {**OPTIONS[kind].choices, **dict.fromkeys(OPTIONS[kind].texts)}
    for scheme, kind in (("s3", "s3"), ("gs", "gcs"), ("az", "azure"))
}


@pytest.fixture(scope="module")
def options() -> set[str]:
    parsers = [build_parser(name).parse_args(line.split()).parser for name, line in KNOWN.items()]
    return {one for parser in parsers for one in parser._option_string_actions} | {"--version"}


@pytest.mark.parametrize("word", ADVICE)
def test_advice_names_what_exists(options: set[str], word: str) -> None:
    text = ADVICE[word]
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= options
    for verb in re.findall(r"skyplane-orch ([a-z]+)", text):
        assert verb in VERBS


@pytest.mark.parametrize("word", [one for one in ADVICE if "-option " in ADVICE[one]])
def test_advice_names_options_that_the_stores_have(word: str) -> None:
    text = ADVICE[word]
    named = re.findall(r"--(?:src|dst)-option ([\w-]+)=(\S+)", text)
    assert named
    for scheme in re.findall(r"(s3|gs|az)://", text) or STORE_OPTIONS:
        for option, value in named:
            choices = STORE_OPTIONS[scheme][option]
            assert choices is None or value.isupper() or value in choices


def test_words_that_a_verb_has_need_no_advice() -> None:
    assert not set(other_tools._VERBS) & set(VERBS)
