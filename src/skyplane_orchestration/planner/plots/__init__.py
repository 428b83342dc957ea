"""Drawings of plans and frontiers as SVG."""
