"""The control API of a gateway: HTTP/1.1 with JSON over mutually authenticated TLS 1.3.

Its calls are answered in `control_server`. The library imports `client` only.
"""
