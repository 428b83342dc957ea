"""Gateways as processes of this machine."""
