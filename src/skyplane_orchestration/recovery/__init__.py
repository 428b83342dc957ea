"""Failover decisions, cleanup of what transfers left, and the sweep."""
