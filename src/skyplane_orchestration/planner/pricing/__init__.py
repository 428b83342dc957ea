"""Costs of a job: egress, instances, requests, and the fees of transfer services."""
