"""The map between classes, and which tags a store can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_gateway.common.errors import MetadataNotCarried
from skyplane_gateway.common.kept_properties import (
    CLASSES,
    PLAIN,
    KeptProperties,
    holdable_tags,
    kept_properties_of,
)
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, StoreSpec
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder
from skyplane_gateway.source.object_reader import kept_of
from skyplane_gateway.stores.async_requests import WholeObject


@pytest.mark.parametrize(
    ("source", "s3", "gcs", "azure"),
    [
        (None, "STANDARD", "STANDARD", "Hot"),
        ("STANDARD_IA", "STANDARD_IA", "NEARLINE", "Cool"),
        ("ONEZONE_IA", "ONEZONE_IA", "NEARLINE", "Cool"),
        ("GLACIER_IR", "GLACIER_IR", "COLDLINE", "Cold"),
        ("INTELLIGENT_TIERING", "INTELLIGENT_TIERING", None, None),
        ("GLACIER", None, None, None),
        ("NEARLINE", "STANDARD_IA", "NEARLINE", "Cool"),
        ("COLDLINE", "GLACIER_IR", "COLDLINE", "Cold"),
        ("ARCHIVE", "GLACIER_IR", "ARCHIVE", "Cold"),
        ("Cool", "STANDARD_IA", "NEARLINE", "Cool"),
        ("Cold", "GLACIER_IR", "COLDLINE", "Cold"),
        ("Archive", None, None, None),
    ],
)
def test_each_class_has_its_equal(
    source: str | None, s3: str | None, gcs: str | None, azure: str | None
) -> None:
    expected = {"s3": s3, "gcs": gcs, "azure": azure, "file": None}
    for kind, name in expected.items():
        assert KeptProperties(kind, tags=False, storage_class=True).class_of(source) == name
        assert name is None or name in CLASSES[kind]


LISTED = ObjectInfo(
    "k", 1, "e", 0.0, not_carried=("tags", "storage-class", "hold"), storage_class="Cool"
)


def test_without_options_nothing_is_kept_and_all_is_reported() -> None:
    kept = kept_properties_of(StoreSpec("azure", "a/c"), StoreSpec("s3", "b"))
    found = kept.of_source(LISTED)
    assert (found.storage_class, found.not_carried) == (None, LISTED.not_carried)
    assert kept.tags_for == ""


def test_a_row_of_a_listing_leaves_tags_to_the_read() -> None:
    source = StoreSpec("azure", "a/c", options=(("tags", "keep"),))
    kept = kept_properties_of(source, StoreSpec("s3", "b", options=(("storage-class", "keep"),)))
    found = kept.of_source(LISTED)
    assert (found.storage_class, found.not_carried) == ("STANDARD_IA", ("hold",))


def test_a_class_that_nobody_has_chosen_is_not_kept() -> None:
    """The tier of an Azure account: a copy gets the usual class, and lacks nothing."""
    inferred = replace(LISTED, not_carried=())
    for option, found in ((), None), ((("storage-class", "keep"),), "STANDARD"):
        kept = kept_properties_of(StoreSpec("azure", "a/c"), StoreSpec("s3", "b", options=option))
        row = kept.of_source(inferred)
        assert (row.storage_class, row.not_carried) == (found, ())


ODD = ObjectAttributes(
    content_type="text/csv",
    content_disposition="caf\u00e9.csv",
    metadata=(("a", "caf\u00e9"), ("b", "plain"), ("na\u00efve", "x")),
)
ODD_LOST = ("content-disposition", "user-metadata")


def test_text_that_no_header_holds_is_left_out_on_request() -> None:
    omitting = StoreSpec("s3", "b", options=(("non-ascii", "omit"),))
    info = replace(LISTED, attributes=ODD)
    kept = kept_properties_of(StoreSpec("gcs", "b"), omitting)
    found = kept.of_source(info)
    fits = ObjectAttributes(content_type="text/csv", metadata=(("b", "plain"),))
    assert found.attributes == fits
    assert found.not_carried == (*LISTED.not_carried, *ODD_LOST)
    assert kept.of_source(replace(info, attributes=fits)).not_carried == LISTED.not_carried
    usual = kept_properties_of(StoreSpec("gcs", "b"), StoreSpec("s3", "b")).of_source(info)
    assert (usual.attributes, usual.not_carried) == (ODD, LISTED.not_carried)


def test_a_source_leaves_it_out_too() -> None:
    wanted, kept = RangeOrder("k", "e", 0, 1, "k"), replace(PLAIN, omits_non_ascii=True)
    order = ChunkOrder(1, 1, 0, "objects", (wanted,), kept=kept)
    attributes, noted = kept_of(order, wanted, WholeObject(b"x", ODD, ()))
    assert (attributes.metadata, noted.not_carried) == ((("b", "plain"),), ODD_LOST)
    with pytest.raises(MetadataNotCarried, match="user-metadata"):
        kept_of(replace(order, strict_metadata=True), wanted, WholeObject(b"x", ODD, ()))


def test_an_object_whose_tags_do_not_fit_is_reported() -> None:
    kept = KeptProperties("azure", tags=True, storage_class=False)
    good, bad = (("team", "blue"),), (("team", "größe"),)
    for tags, carried, lacks in ((good, good, ("hold",)), (bad, (), ("tags", "hold"))):
        info = ObjectInfo("k", 1, "e", 0.0, None, ObjectAttributes(tags=tags), ("tags", "hold"))
        found = kept.of_source(info)
        assert found.attributes == ObjectAttributes(tags=carried)
        assert found.not_carried == lacks


@pytest.mark.parametrize(
    ("kind", "tags", "fits"),
    [
        ("s3", (("größe", "東京"),), True),
        ("azure", (("größe", "1"),), False),
        ("s3", (("aws:createdBy", "x"),), False),
        ("azure", (("a@b", "x"),), False),
        ("s3", tuple((f"t{n}", "") for n in range(10)), True),
        ("s3", tuple((f"t{n}", "") for n in range(11)), False),
        ("azure", (("n" * 129, ""),), False),
        ("s3", (("n", "v" * 257),), False),
        ("gcs", (("a", "b"),), False),
        ("", (("a", "b"),), False),
    ],
)
def test_all_tags_or_none(kind: str, tags: tuple[tuple[str, str], ...], fits: bool) -> None:
    assert holdable_tags(kind, tags) == (tags if fits else ())
