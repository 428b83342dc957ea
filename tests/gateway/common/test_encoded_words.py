"""Texts that no header can hold go into one and come back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.encoded_words import (
    fits,
    from_header,
    from_header_name,
    to_header,
    to_header_name,
)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain text, =?1", "plain text, =?1"),
        ("", ""),
        ("caf\u00e9", "=?UTF-8?B?Y2Fmw6k=?="),
        (" edge", "=?UTF-8?B?IGVkZ2U=?="),
        ("two\nlines", "=?UTF-8?B?dHdvCmxpbmVz?="),
        ("=?UTF-8?B?Y2Fmw6k=?=", "=?UTF-8?B?PT9VVEYtOD9CP1kyRm13Nms9Pz0=?="),
        # An encoded word that needs none is only text.
        ("=?UTF-8?B?YWJj?=", "=?UTF-8?B?YWJj?="),
    ],
)
def test_texts(text: str, sent: str) -> None:
    assert to_header(text) == sent
    assert from_header(sent) == text
    assert fits(text) == (text == sent)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ("=?utf-8?Q?caf=C3=A9?=", "caf\u00e9"),
        ("=?UTF-8?B?Y2Fm?= =?UTF-8?B?w6k=?=", "caf\u00e9"),
        ("=?ISO-8859-1?Q?caf=E9?=", "caf\u00e9"),
        # As the header's bytes of a server that takes UTF-8 are read.
        ("caf\u00c3\u00a9", "caf\u00e9"),
        ("caf\u00e9", "caf\u00e9"),
        ('attachment; filename="=?UTF-8?B?Y2Fmw6k=?="',) * 2,
        ("=?none?B?Y2Fmw6k=?=",) * 2,
        ("=?UTF-8?B?!!!?=",) * 2,
        ("=?UTF-8?B?/w==?=",) * 2,
    ],
)
def test_what_servers_and_other_programs_write(found: str, text: str) -> None:
    assert from_header(found) == text


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("plain-name_1.x", "plain-name_1.x"),
        ("100%", "100%"),
        ("a_2d_b", "a_2d_b"),
        ("na\u00efve_x", "na_c3__af_ve_5f_x"),
        ("two words", "two_20_words"),
        ("a_20_b", "a_5f_20_5f_b"),
        ("_ff_", "_ff_"),
    ],
)
def test_names(name: str, sent: str) -> None:
    assert to_header_name(name) == sent
    # Services give names in lower case.
    assert from_header_name(sent) == from_header_name(sent.lower()) == name


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    sent = to_header(text)
    assert sent.isascii()
    assert "\n" not in sent
    assert from_header(sent) == text


@given(st.text(min_size=1))
def test_every_name_comes_back(name: str) -> None:
    sent = to_header_name(name)
    assert sent.isascii()
    assert from_header_name(sent) == name
