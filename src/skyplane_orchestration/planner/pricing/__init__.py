"""Prices of a job: egress, instances, requests, transfer services."""
