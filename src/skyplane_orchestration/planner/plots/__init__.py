"""Drawings as SVG: of plans, and by matplotlib (extra `plots`) of frontiers."""
