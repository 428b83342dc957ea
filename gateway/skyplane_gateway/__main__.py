"""`python -m skyplane_gateway` is `skyplane-gateway`."""

from skyplane_gateway.main import entry_point

entry_point()
