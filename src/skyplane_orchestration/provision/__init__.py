"""Provisioners: one protocol (`provisioner`), idempotent verbs, tags as the only source of truth.

`fleet` has instances of clouds and hosts, `local` processes, `in_process` a thread of the caller.
"""
