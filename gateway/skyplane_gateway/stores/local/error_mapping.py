"""Maps errno of the file system to this project's errors."""

from __future__ import annotations

import errno
from typing import Final

from skyplane_gateway.common.errors import (
    InvalidKey,
    NotFound,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.stores.error_rules import mapping

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_IN_THE_WAY = {errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY}
_BAD_NAME = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ELOOP}
_TRANSIENT = {errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ETIMEDOUT}


def translate(error: OSError, what: str) -> StoreError:
    said = f"{what}: {error.strerror or type(error).__name__}"
    number = error.errno
    if number == errno.ENOENT:
        return NotFound(f"{said}; check the name, or it was deleted meanwhile")
    if number in _DENIED:
        return PermissionDenied(f"{said}; allow the gateway's user to read or write there")
    if number in _FULL:
        return StoreError(f"{said}; free some space, then continue")
    if number in _IN_THE_WAY:
        return InvalidKey(
            f"{said}; a file cannot stand where a directory is needed, nor the other way round"
        )
    if number in _BAD_NAME:
        return InvalidKey(f"{said}; the file system cannot hold this name")
    return StoreUnavailable(f"{said}; try again") if number in _TRANSIENT else StoreError(said)


mapped: Final = mapping(translate, OSError)
