"""Signed manifests: who has signed what, and that nothing else passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.storage.manifest.places import commit

from skyplane_orchestration import Client
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.manifest.place_manifest import ManifestReport
from skyplane_orchestration.storage.manifest.signature import ManifestKey


def private_pem(key: Any, passphrase: bytes = b"") -> bytes:
    cipher = pem.BestAvailableEncryption(passphrase) if passphrase else pem.NoEncryption()
    text: bytes = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, cipher)
    return text


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Files of two pairs of keys."""
    for name in ("own", "other"):
        key = Ed25519PrivateKey.generate()
        (tmp_path / f"{name}.pem").write_bytes(private_pem(key))
        public = key.public_key().public_bytes(
            pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo
        )
        (tmp_path / f"{name}.pub").write_bytes(public)
    return tmp_path


@pytest.fixture
def place(tmp_path: Path) -> Location:
    (tmp_path / "dst").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "dst" / name).write_text(name)
    return Location(f"{tmp_path}/dst/")


def own(keys: Path) -> ManifestKey:
    return ManifestKey.for_signing(f"{keys}/own.pem")


def verified(place: Location, key: Path | None) -> ManifestReport:
    return Client().manifest(place).verify(None if key is None else str(key))


def pointer_of(place: Location) -> Path:
    return Path(f"/{place.key}.skyplane/manifest/pointer.json")


def test_signed_runs(place: Location, keys: Path) -> None:
    commit(place, ["a"], key=own(keys))
    commit(place, ["b"], key=own(keys))
    report = verified(place, keys / "own.pub")
    assert report.signatures == {1: "signed", 2: "signed"}
    assert report.is_equal
    assert report.rows == 2
    assert verified(place, None).signatures == {1: "unchecked", 2: "unchecked"}
    wrong = verified(place, keys / "other.pub")
    assert wrong.signatures == {1: "wrong", 2: "wrong"}
    assert wrong.findings == [
        "wrong: the signature of run 1",
        "wrong: the signature of run 2",
    ]


def test_a_run_without_a_key_after_signed_ones(place: Location, keys: Path) -> None:
    commit(place, ["a"], key=own(keys))
    commit(place, ["b"])
    report = verified(place, keys / "own.pub")
    assert report.signatures == {1: "signed", 2: "unsigned"}
    assert report.findings == ["unsigned: the signature of run 2"]
    assert verified(place, None).is_equal


@pytest.mark.parametrize("before", [None, "other"])
def test_rows_of_others_are_not_signed(place: Location, keys: Path, before: str | None) -> None:
    """Else who can write to the bucket could have rows of their own signed by the next run."""
    key = ManifestKey.for_signing(f"{keys}/other.pem") if before else None
    commit(place, ["a", "b"], key=key)
    commit(place, ["c"], key=own(keys))
    report = verified(place, keys / "own.pub")
    assert (report.rows, report.unknown) == (1, ("a", "b"))
    assert report.signatures[2] == "signed"
    assert Client().manifest(place).table()["key"].to_pylist() == ["c"]


@pytest.mark.parametrize(
    "forge",
    [
        lambda run, _: run.update(source="s3://elsewhere/"),
        lambda run, _: run.update(committed_unix_s=1.0),
        lambda run, _: run.update(commit=9),
        lambda run, _: run.update(copied=2),
        lambda _, segment: segment.update(parquet_sha256="0" * 64),
        lambda _, segment: segment.update(index_sha256="0" * 64),
        lambda _, segment: segment.update(stores=["s3://elsewhere/"]),
        lambda run, _: run.update(signature="no base64"),
        lambda run, _: run.update(signature=run["signature"][::-1]),
    ],
)
def test_a_forged_pointer(place: Location, keys: Path, forge: Any) -> None:
    commit(place, ["a"], key=own(keys))
    document = json.loads(pointer_of(place).read_bytes())
    forge(document["snapshots"][0], document["segments"][0])
    pointer_of(place).write_text(json.dumps(document))
    report = verified(place, keys / "own.pub")
    assert list(report.signatures.values()) == ["wrong"]
    assert not report.is_equal


def test_a_signature_is_of_its_place(place: Location, keys: Path, tmp_path: Path) -> None:
    commit(place, ["a"], key=own(keys))
    Path(f"/{place.key}").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / ".skyplane/manifest/pointer.json"
    moved.write_text(moved.read_text().replace("/dst/", "/moved/"))
    assert verified(Location(f"{tmp_path}/moved/"), keys / "own.pub").signatures == {1: "wrong"}


def test_a_key_from_a_variable(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", (keys / "own.pem").read_text())
    found = ManifestKey.for_signing("env:THE_KEY")
    assert found.public.public_bytes_raw() == own(keys).public.public_bytes_raw()
    monkeypatch.delenv("THE_KEY")
    with pytest.raises(
        ConfigurationInvalid, match="manifest_key 'env:THE_KEY' cannot be read: the v"
    ):
        ManifestKey.for_signing("env:THE_KEY")


def test_keys_that_cannot_be_used(keys: Path) -> None:
    (keys / "ec.pem").write_bytes(private_pem(generate_private_key(SECP256R1())))
    (keys / "locked.pem").write_bytes(private_pem(Ed25519PrivateKey.generate(), b"secret"))
    (keys / "empty.pem").touch()
    for name in ("ec.pem", "locked.pem", "empty.pem", "own.pub"):
        with pytest.raises(ConfigurationInvalid, match=r"is no private Ed25519 key in PEM without"):
            ManifestKey.for_signing(f"{keys}/{name}")
    with pytest.raises(ConfigurationInvalid, match=r"public_key '.*' is no public Ed25519 key"):
        ManifestKey.for_checks(f"{keys}/own.pem")
    with pytest.raises(ConfigurationInvalid, match=r"cannot be read: No such file"):
        ManifestKey.for_checks(f"{keys}/nothing")


def test_a_key_in_place_of_its_reference_is_not_shown(keys: Path) -> None:
    text = (keys / "own.pem").read_text()
    with pytest.raises(ConfigurationInvalid) as caught:
        ManifestKey.for_signing(text)
    assert text.splitlines()[1] not in str(caught.value)
    assert str(caught.value).startswith("manifest_key '-----BEGIN...' cannot be read: ")
