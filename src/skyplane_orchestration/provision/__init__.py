"""Provisioners: one protocol (`base`), idempotent verbs, tags as the only truth."""
