"""Writes a grid directory from measurements of other tools."""
