"""The control API of a gateway: HTTP/1.1 with JSON over mutually authenticated TLS 1.3.

`client` is part of the package's public face; `server` belongs to the service.
"""
