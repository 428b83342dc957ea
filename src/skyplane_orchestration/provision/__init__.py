"""Provisioners: one protocol (`base`), idempotent verbs, tags as the only truth.

There is one so far: `local`, whose gateways are processes of the machine that asks for them.
"""
