"""Lists one level of a prefix: its objects, and the folders below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores import ObjectStore

#: Objects of a folder that are read before the listing starts again behind it: one page.
_PAGE: Final = 1000

#: After all keys of a folder that do not begin with it.
_LAST: Final = "\U0010ffff"


def one_level(store: ObjectStore, prefix: str) -> Iterator[ObjectInfo | str]:
    """Objects and folders whose names begin with `prefix`, in the order of keys.

    A folder is its key, with a slash at the end. Takes a call for each folder of more than a
    page, and no more memory for more objects. Raises StoreError.
    """
    start = prefix.rfind("/") + 1
    folder, skipped, start_after = "", 0, None
    while True:
        for row in store.list(prefix, start_after=start_after):
            if folder and row.key.startswith(folder):
                skipped += 1
                if skipped % _PAGE == 0:
                    start_after = folder + _LAST
                    break
                continue
            end = row.key.find("/", max(start, len(prefix)))
            if end < 0:
                folder = ""
                yield row
            else:
                folder, skipped = row.key[: end + 1], 1
                yield folder
        else:
            return
