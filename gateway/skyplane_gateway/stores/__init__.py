"""Object stores behind one protocol (`base.ObjectStore`).

`open_store` imports the SDK of the kind it is asked for and no other.
"""

from __future__ import annotations

from importlib import import_module

from skyplane_gateway.errors import ConfigurationInvalid
from skyplane_gateway.stores.base import Credentials, ObjectStore, StoreSpec

__all__ = ["Credentials", "ObjectStore", "StoreSpec", "open_store"]

_MODULES = {
    "file": "skyplane_gateway.stores.local",
    "memory": "skyplane_gateway.stores.memory",
    "s3": "skyplane_gateway.stores.s3",
}


def open_store(spec: StoreSpec, credentials: Credentials | None = None) -> ObjectStore:
    """Open the store of `spec`; without credentials the platform's own identity is used.

    Makes no request: `ObjectStore.check` does.

    Raises:
        ConfigurationInvalid: there is no such kind, its SDK is not installed, or an
            option cannot be used.
    """
    if spec.kind not in _MODULES:
        raise ConfigurationInvalid(
            f"there is no store of kind {spec.kind!r}; choose one of {', '.join(_MODULES)}"
        )
    try:
        module = import_module(_MODULES[spec.kind])
    except ModuleNotFoundError as error:
        raise ConfigurationInvalid(
            f"the store {spec.kind!r} needs the package {error.name!r}, which is not installed"
        ) from error
    store: ObjectStore = module.open_from_spec(spec, credentials)
    return store
