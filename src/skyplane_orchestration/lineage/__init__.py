"""Lineage facts of a transfer, for all orchestrators."""
