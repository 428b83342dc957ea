"""Imports measurements of other tools as grid directories."""
