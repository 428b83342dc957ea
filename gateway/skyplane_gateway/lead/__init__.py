"""The lead: the source gateway that runs a transfer.

It lists, maps keys, cuts chunks, dispatches them, collects receipts, has a sink
complete uploads, and reports. It holds no destination credential: every verb on the
destination runs on a sink gateway.
"""
