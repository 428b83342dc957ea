"""The way to a service by the certificates and the proxy that `requests` takes."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.stores.async_requests import TlsAndProxy


def tls_and_proxy_to(url: str) -> TlsAndProxy:
    """Raises ConfigurationInvalid where the CA bundle cannot be read."""
    proxy = select_proxy(url, get_environ_proxies(url, None))
    return TlsAndProxy(_tls_context() if url.startswith("https://") else None, proxy)


def _tls_context() -> ssl.SSLContext:
    """Raises ConfigurationInvalid where the CA bundle cannot be read."""
    named = (os.environ.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
    bundle = next(filter(None, named), DEFAULT_CA_BUNDLE_PATH)
    is_folder = Path(bundle).is_dir()
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else bundle, capath=bundle if is_folder else None
        )
    except OSError as error:
        raise ConfigurationInvalid(
            f"the CA bundle {bundle!r} cannot be read ({error.strerror or error}); correct "
            "REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE"
        ) from error
