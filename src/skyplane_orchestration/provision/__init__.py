"""Provisioners: one protocol (`base`), idempotent verbs, tags as the only source of truth.

This release has one: `local`, whose gateways are processes on the caller's machine.
"""
