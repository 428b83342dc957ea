"""Enrolment: how an instance of a cloud and its orchestrator prove themselves to each other.

docs/explanation/security.md describes the exchange.
"""
