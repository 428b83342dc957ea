"""Retries, request limits and fresh credentials, the same for every store."""
