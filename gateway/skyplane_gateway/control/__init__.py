"""The control API of a gateway: HTTP/1.1 with JSON over mutually authenticated TLS 1.3.

The library imports `client` only.
"""
