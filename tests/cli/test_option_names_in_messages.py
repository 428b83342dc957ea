"""Errors name the options of the command, and leave all other words as they are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest
from tests.gateway.common.test_wording import calls_with_fields

from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.cli.main import build_parser, with_option_names

if TYPE_CHECKING:
    pass

#: Arguments of the library without an option.
_OF_PYTHON = {
    *("gateway_settings", "max_active_fleets", "clouds", "hosts"),
}


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("verify", "'none'", "--no-verify"),
        ("recursive", "True", "-r"),
        ("max_relays", "", "--relays"),
        ("publish_last", "", "--last"),
        ("clouds_file", "", "--clouds"),
        ("source_url", "", "SRC"),
        ("destination_endpoint", "", "--dst-endpoint"),
        ("source_credential_ref", "", "--src-credentials"),
        ("source_read_gbps", "", "--source-read-gbps"),
        ("conflict", "", "--conflict"),
        ("no_such_argument", "", "no_such_argument"),
    ],
)
def test_an_argument_is_named_by_its_option(name: str, value: str, option: str) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b"])
    assert with_option_names(Text("give ", FieldName(name, value)), options) == f"give {option}"


def test_every_argument_in_a_message_has_an_option() -> None:
    parsers = [
        build_parser(name).parse_args(words.split()).parser
        for name, words in (
            ("cp", "cp a b"),
            ("sync", "sync a b"),
            ("plan", "plan a b"),
            ("grid", "grid profile a b --out c"),
        )
    ]
    names = {
        name
        for _, call, places in calls_with_fields()
        for name in places - {one.arg for one in call.keywords}
    }
    for name in sorted(names - _OF_PYTHON):
        texts = [
            with_option_names(Text(FieldName(name)), argparse.Namespace(parser=one))
            for one in parsers
        ]
        assert any(text != name for text in texts), name
