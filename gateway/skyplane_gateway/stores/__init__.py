"""Object stores behind one protocol (`base.ObjectStore`): clouds and files."""

from __future__ import annotations

from skyplane_gateway.common.mtime import KEPT_TIME
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.azure.connection_strings import (
    connection_string_fields,
    url_of_account,
)
from skyplane_gateway.stores.base import ListedRows, ObjectStore, list_from
from skyplane_gateway.stores.content_types import GUESSED_TYPE
from skyplane_gateway.stores.gcs.endpoints import is_google
from skyplane_gateway.stores.heads import head_all, with_crc32c
from skyplane_gateway.stores.key_escape import escape_name, unescape_name
from skyplane_gateway.stores.key_rules import check_destination_key
from skyplane_gateway.stores.local.asides import Asides
from skyplane_gateway.stores.options import gives_checksums, uses_md5
from skyplane_gateway.stores.reach import Reach
from skyplane_gateway.stores.registry import (
    ambient_credentials,
    bucket_region,
    limited_credentials,
    load_stores_of,
    open_store,
    require_kind,
    sendable_credentials,
    session_credentials,
)
from skyplane_gateway.stores.s3.endpoints import has_sessions
from skyplane_gateway.stores.server_clock import ahead_s_of

__all__ = [
    "GUESSED_TYPE",
    "KEPT_TIME",
    "Asides",
    "Credentials",
    "ListedRows",
    "ObjectStore",
    "Reach",
    "StoreSpec",
    "ahead_s_of",
    "ambient_credentials",
    "bucket_region",
    "check_destination_key",
    "connection_string_fields",
    "escape_name",
    "gives_checksums",
    "has_sessions",
    "is_google",
    "limited_credentials",
    "list_from",
    "load_stores_of",
    "head_all",
    "open_store",
    "require_kind",
    "sendable_credentials",
    "session_credentials",
    "unescape_name",
    "url_of_account",
    "uses_md5",
    "with_crc32c",
]
