"""Drawings of plans and frontiers as SVG, by matplotlib (extra `plots`)."""
