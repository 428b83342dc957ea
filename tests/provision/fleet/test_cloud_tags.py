"""Tags of each cloud: what is written can be read again, and nothing is sent that is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, strategies as st

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.aws import options as aws
from skyplane_orchestration.provision.azure import options as azure
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.tags import INSTANCE, TagAlphabet
from skyplane_orchestration.provision.gcp import options as gcp
from strict_clouds.gce_instances import check_labels

FLEET: Final = FleetTags("0123456789abcdef" * 2, "prod", 3, 1_700_000_000, 1_700_086_400, 4)
REGION: Final = "gcp:us-central1"
LONGEST_REGION: Final = "gcp:northamerica-northeast1"
ALPHABETS: Final = [aws.ALPHABET, azure.ALPHABET, gcp.ALPHABET]

alphabets = pytest.mark.parametrize("alphabet", ALPHABETS, ids=lambda one: one.cloud)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)


@given(texts, texts, st.sampled_from(ALPHABETS))
def test_every_text_survives_and_no_two_are_one(
    one: str, other: str, alphabet: TagAlphabet
) -> None:
    assert alphabet.unescaped(alphabet.escaped(one)) == one
    assert (alphabet.escaped(one) == alphabet.escaped(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9 _.:/=+\-@]*", aws.ALPHABET.escaped(one))


@pytest.mark.parametrize("text", ["aws:prod", "a*b?", "a=41", "=", "日本", "", "prod eu"])
def test_no_value_of_aws_has_a_wildcard_or_a_reserved_beginning(text: str) -> None:
    value = aws.ALPHABET.escaped(text)
    assert not value.startswith("aws:")
    assert not set("*?") & set(value)


def test_values_are_as_the_last_release_wrote_them() -> None:
    """Or a sweep would not find its fleets."""
    assert aws.ALPHABET.escaped("aws:é*=") == "=61ws:=c3=a9=2a=3d"
    assert gcp.ALPHABET.escaped("Prod_é/1") == "_50rod_5f_c3_a9_2f1"
    assert azure.ALPHABET.escaped("Prod's é") == "Prod's é"


@alphabets
def test_a_fleet_survives(alphabet: TagAlphabet) -> None:
    fleet = replace(FLEET, deployment="prod's \u00fc=*")
    written = alphabet.written(fleet, {"team": "data"}, instance="aws:us-east-1/0")
    assert alphabet.fleet_of(written) == fleet
    assert alphabet.value(written, INSTANCE) == "aws:us-east-1/0"
    assert written["team"] == "data"


@given(st.text(max_size=5))
def test_google_takes_the_labels(deployment: str) -> None:
    fleet = replace(FLEET, deployment=deployment or "x")
    check_labels(gcp.ALPHABET.written(fleet, {}, instance=f"{REGION}/0"))


@alphabets
def test_our_tags_win(alphabet: TagAlphabet) -> None:
    name = alphabet.name("fleet")
    assert alphabet.written(FLEET, {name: "x"})[name] == FLEET.fleet_key


@alphabets
@pytest.mark.parametrize("short", ["fleet", "deployment"])
def test_things_without_our_tags_belong_to_no_fleet(alphabet: TagAlphabet, short: str) -> None:
    written, name = alphabet.written(FLEET, {}), alphabet.name(short)
    assert alphabet.fleet_of({**written, name: ""}) is None
    assert alphabet.fleet_of({key: text for key, text in written.items() if key != name}) is None
    assert alphabet.fleet_of(None) is None


@alphabets
@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "²"])
def test_a_time_that_cannot_be_read_has_passed(alphabet: TagAlphabet, text: str) -> None:
    broken = dict.fromkeys(map(alphabet.name, ("hard_end", "processes")), text)
    found = alphabet.fleet_of(alphabet.written(FLEET, {}) | broken)
    assert found == replace(FLEET, hard_end_unix_s=0, processes=1)


@alphabets
def test_a_deployment_that_is_too_long_is_refused(alphabet: TagAlphabet) -> None:
    most = alphabet.most_characters
    alphabet.written(replace(FLEET, deployment="d" * most), {})
    too_long = ["d" * (most + 1), *(["é" * (most // 3)] if alphabet.escape else [])]
    for deployment in too_long:
        with pytest.raises(ConfigurationInvalid, match=f"deployment .* {most} characters"):
            alphabet.written(replace(FLEET, deployment=deployment), {})


_ALPHABETS: Final = {
    "user_tags of aws": aws.ALPHABET,
    "user_tags of azure": azure.ALPHABET,
    "user_labels of gcp": gcp.ALPHABET,
}


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("user_tags of aws", {"": "x"}),
        ("user_tags of aws", {"aws:x": "y"}),
        ("user_tags of aws", {"x": "aws:y"}),
        ("user_tags of aws", {"skyplane:fleet": "x"}),
        ("user_tags of aws", {"x" * 129: "y"}),
        ("user_tags of aws", {"x": "y" * 257}),
        ("user_tags of aws", {"x": "a*b"}),
        ("user_tags of aws", {f"x{number}": "y" for number in range(41)}),
        ("user_tags of azure", {"a/b": "c"}),
        ("user_tags of azure", {"a": "c" * 257}),
        ("user_tags of azure", {"skyplane:fleet": "c"}),
        ("user_tags of azure", {"Microsoft-x": "c"}),
        ("user_tags of azure", {"SkyPlane:fleet": "c"}),
        ("user_tags of azure", {"": "c"}),
        ("user_tags of azure", {str(number): "" for number in range(41)}),
        ("user_labels of gcp", {"Team": "x"}),
        ("user_labels of gcp", {"team": "Data"}),
        ("user_labels of gcp", {"skyplane_fleet": "x"}),
        ("user_labels of gcp", {f"x{number}": "y" for number in range(49)}),
    ],
)
def test_tags_of_users_that_nobody_can_have_are_refused(
    setting: str, given: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationInvalid, match=setting):
        _ALPHABETS[setting].check_user_tags(setting, given)


def test_user_tags_may_have_letters_of_all_languages() -> None:
    named = {"équipe": "données 1/2", "cost-centre": "a@b=c", "empty": ""}
    aws.ALPHABET.check_user_tags("user_tags of aws", named)


def test_the_web_console_of_aws_shows_a_name() -> None:
    named = aws.as_mapping(aws.for_fleet(FLEET, {}))
    assert named["Name"] == "skyplane 01234567"


@given(st.text())
def test_descriptions_are_read_back(deployment: str) -> None:
    fleet = replace(FLEET, deployment=deployment or "x")
    assert gcp.described(gcp.description(fleet, REGION)) == (fleet, REGION)


@pytest.mark.parametrize(
    "text",
    [
        *("", "mine", "[]", "{}", '{"skyplane_fleet": 1}', '"text"'),
        '{"fleet": "0", "deployment": "prod", "skyplane_region": "gcp:us-central1"}',
    ],
)
def test_a_foreign_description_is_none_of_ours(text: str) -> None:
    assert gcp.described(text) is None


def test_names_of_google_fit_into_63_characters() -> None:
    rule = gcp.network_tag(FLEET.fleet_key, LONGEST_REGION) + "-7600-7663"
    name = gcp.instance_name(FLEET.fleet_key, f"{LONGEST_REGION}/127", 15)
    assert max(len(rule), len(name)) <= 63
    assert name == f"skyplane-{FLEET.fleet_key[:20]}-northamerica-northeast1-127-15"
