"""Drawings as SVG: of plans, and by matplotlib (extra `plots`) of frontiers."""

#: Size of a drawing, and height of its two title lines, in points.
WIDTH, HEIGHT, HEADER = 720.0, 405.0, 42.0
