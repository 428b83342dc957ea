"""Object stores behind one protocol (`base.ObjectStore`): clouds, files, and memory for tests."""

from __future__ import annotations

from skyplane_gateway.objects import Credentials, StoreSpec
from skyplane_gateway.stores.azure.connection_strings import connection_string_fields
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.content_types import GUESSED_TYPE
from skyplane_gateway.stores.key_escape import escape_name, unescape_name
from skyplane_gateway.stores.key_rules import check_destination_key
from skyplane_gateway.stores.listed_rows import ListedRows, list_from
from skyplane_gateway.stores.mtime import KEPT_TIME, own_time_s
from skyplane_gateway.stores.options import gives_checksums
from skyplane_gateway.stores.registry import (
    ambient_credentials,
    bucket_region,
    open_store,
    require_kind,
    sendable_credentials,
    session_credentials,
)

__all__ = [
    "GUESSED_TYPE",
    "KEPT_TIME",
    "Credentials",
    "ListedRows",
    "ObjectStore",
    "StoreSpec",
    "ambient_credentials",
    "bucket_region",
    "check_destination_key",
    "connection_string_fields",
    "escape_name",
    "gives_checksums",
    "list_from",
    "open_store",
    "own_time_s",
    "require_kind",
    "sendable_credentials",
    "session_credentials",
    "unescape_name",
]
