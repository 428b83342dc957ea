"""Lineage facts of a transfer, one builder for all orchestrators."""
