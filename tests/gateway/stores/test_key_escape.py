"""Escaped names: legal, injective, and reversible."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import InvalidKey
from skyplane_gateway.stores.key_escape import QUOTE, escape_name, unescape_name
from skyplane_gateway.stores.key_rules import check_destination_key

KINDS = ("s3", "file", "gcs", "azure", "memory")
odd = st.text(
    st.sampled_from(["a", ".", "/", "\\", "\0", "\n", "\x9f", "5", "C", QUOTE]), max_size=6
)
names = odd | st.text(max_size=8) | st.sampled_from([".skyplane/uploads/x", ".skyplane-upload-x"])


@given(st.sampled_from(KINDS), st.sampled_from(["", "to/"]), names, st.integers(0, 1))
@settings(deadline=None, max_examples=300)
def test_the_original_can_be_read_back(kind: str, folder: str, name: str, size: int) -> None:
    """So no two names become one."""
    assert unescape_name(escape_name(kind, folder, name, size)) == name


@given(st.sampled_from(KINDS), names, st.integers(0, 1))
@settings(deadline=None, max_examples=300)
def test_a_legal_name_without_a_quote_stays(kind: str, name: str, size: int) -> None:
    try:
        check_destination_key(kind, f"to/{name}", size)
    except InvalidKey:
        return
    if QUOTE not in name:
        assert escape_name(kind, "to/", name, size) == name


@given(st.sampled_from(KINDS), odd.filter(bool), st.integers(0, 1))
@settings(deadline=None, max_examples=300)
def test_an_escaped_name_is_legal(kind: str, name: str, size: int) -> None:
    check_destination_key(kind, "to/" + escape_name(kind, "to/", name, size), size)


@pytest.mark.parametrize(
    ("kind", "name", "escaped"),
    [
        ("azure", "a\\b", "a~5Cb"),
        ("azure", "a/../b", "a/~2E~2E/b"),
        ("azure", "a\nb", "a~0Ab"),
        ("azure", "a../b.c.", "a~2E~2E/b.c~2E"),
        ("gcs", "a\\b", "a\\b"),
        ("gcs", "a\rb", "a~0Db"),
        ("gcs", ".well-known/acme-challenge/x", "~2Ewell-known/acme-challenge/x"),
        ("s3", "a\\../\n", "a\\../\n"),
        ("s3", "it~s", "it~~s"),
        ("file", "a//b", "a~2F~2Fb"),
        ("file", "/a", "~2Fa"),
        ("file", "a/./b", "a/~2E/b"),
        ("file", ".skyplane-upload-x", "~2Eskyplane-upload-x"),
    ],
)
def test_examples(kind: str, name: str, escaped: str) -> None:
    """`~` stands for the quote."""
    assert escape_name(kind, "", name.replace("~", QUOTE), 1) == escaped.replace("~", QUOTE)


def test_what_no_escape_helps_stays() -> None:
    assert escape_name("file", "", "x" * 300, 1) == "x" * 300
    assert escape_name("file", "", "a/", 1) == f"a{QUOTE}2F"
    assert escape_name("file", "", "a/", 0) == "a/"
