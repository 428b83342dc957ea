"""Strict fakes of EC2, Compute Engine and Azure's Resource Manager, with machines for instances.

See README.md. Nothing is imported here, so each fake brings only what it needs.
"""
