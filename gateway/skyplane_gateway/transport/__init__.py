"""Data connections over asyncio: a `Link` per TCP connection, a `Router` per gateway.

The sans-io `protocol` package decides which messages may come in which order. This
package handles sockets, timers and the set of connected neighbours.
"""
