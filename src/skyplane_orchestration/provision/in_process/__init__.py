"""Gateways inside the calling process, for jobs too small for processes of their own."""
