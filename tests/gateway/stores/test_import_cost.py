"""Listing files and reading a plan must not load an SDK."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import skyplane_gateway.selection.selector
from skyplane_gateway.stores import StoreSpec, open_store
list(open_store(StoreSpec("file", "/")).list("no-such-directory/"))
sdks = "boto3 botocore azure google.auth requests urllib3 awscrt aiohttp numpy".split()
print([name for name in sdks if name in sys.modules])
"""


_GOOGLE = """
import sys
from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.registry import open_without_retries
store = open_without_retries(StoreSpec("gcs", "bkt", "http://127.0.0.1:9"))
for verb in (lambda: store.head("k"), lambda: store._bucket.small_body("k", "1", "reading")):
    try:
        verb()
    except StoreUnavailable:
        print("google.cloud.storage" in sys.modules)
"""


_AHEAD = """
import sys
from skyplane_gateway.stores import load_stores_of
for cloud in ("local", "aws"):
    load_stores_of(cloud)
    print("botocore" in sys.modules)
"""


def _printed(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_no_sdk_is_loaded_before_its_store_is_opened() -> None:
    assert _printed(_SCRIPT) == ["[]"]


def test_a_cloud_s_sdk_can_be_loaded_before_it_is_needed() -> None:
    assert _printed(_AHEAD) == ["False", "True"]


def test_google_s_client_is_loaded_by_a_rare_verb() -> None:
    assert _printed(_GOOGLE) == ["False", "True"]
