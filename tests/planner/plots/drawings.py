"""Reads drawings: where things are, and what is written. Lengths are in points."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"

#: From the upper left corner.
Place = tuple[float, float]


def groups(drawing: str, kind: str) -> dict[str, ElementTree.Element]:
    """What is drawn with an id `kind-name`, by name."""
    return {
        element.attrib["id"].removeprefix(kind + "-"): element
        for element in ElementTree.fromstring(drawing).iter()
        if element.get("id", "").startswith(kind)
    }


def places(drawing: str, kind: str) -> dict[str, Place]:
    """Name -> centre of the circle or mark that is drawn with an id `kind-name`."""
    return {
        name: (
            float(mark.get("x") or mark.attrib["cx"]),
            float(mark.get("y") or mark.attrib["cy"]),
        )
        for name, group in groups(drawing, kind).items()
        for mark in (*group.iter(f"{SVG}use"), *group.iter(f"{SVG}circle"))
    }


def corners(group: ElementTree.Element) -> list[Place]:
    """The points of a path, control points included."""
    (path,) = group.iter(f"{SVG}path")
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def curve(group: ElementTree.Element) -> tuple[list[Place], float]:
    """Points along a quadratic curve, at most some points apart, and its width."""
    (path,) = group.iter(f"{SVG}path")
    (x, y), (u, v), (p, q) = corners(path)
    shares = [step / 100 for step in range(101)]
    points = [
        (
            (1 - t) ** 2 * x + 2 * t * (1 - t) * u + t**2 * p,
            (1 - t) ** 2 * y + 2 * t * (1 - t) * v + t**2 * q,
        )
        for t in shares
    ]
    return points, float(path.attrib["stroke-width"])


def texts(drawing: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def centred_texts(drawing: str) -> list[tuple[float, float, str]]:
    """(x, y, text) of texts that stand on the middle of their base line."""
    return [
        (float(text.attrib["x"]), float(text.attrib["y"]), text.text or "")
        for text in ElementTree.fromstring(drawing).iter(f"{SVG}text")
        if "text-anchor: middle" in text.get("style", "")
    ]


def overlapping_texts(drawing: str) -> list[tuple[str, str]]:
    """Pairs of centred texts that cover each other. A character is at most 5 wide and 8 high."""
    return [
        (one, other)
        for (x, y, one), (u, v, other) in combinations(centred_texts(drawing), 2)
        if abs(y - v) < 8 and abs(x - u) < 5 * (len(one) + len(other)) / 2
    ]
