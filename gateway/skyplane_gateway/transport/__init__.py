"""Data connections over asyncio: one `Link` per TCP connection, `Routes` over all of them.

Thin on purpose: what travels, and in which order it may, is decided by the sans-io
protocol package; here are sockets, readiness and the bookkeeping of who is connected.
"""
