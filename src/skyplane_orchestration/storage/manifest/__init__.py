"""Writes and reads the manifests of places: what their copies were made of."""
