"""Fleets whose gateways are processes of machines: this one, or others over ssh."""
