"""Reads drawings: where things are, and what is written. Lengths are in points."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"

#: From the upper left corner.
Place = tuple[float, float]


def groups(drawing: str, kind: str) -> dict[str, ElementTree.Element]:
    """What is drawn with an id `kind-name`, by name."""
    return {
        group.attrib["id"].removeprefix(kind + "-"): group
        for group in ElementTree.fromstring(drawing).iter(f"{SVG}g")
        if group.get("id", "").startswith(kind)
    }


def places(drawing: str, kind: str) -> dict[str, Place]:
    """Name -> centre of what is drawn with an id `kind-name`."""
    return {
        name: (float(mark.attrib["x"]), float(mark.attrib["y"]))
        for name, group in groups(drawing, kind).items()
        for mark in group.iter(f"{SVG}use")
    }


def corners(group: ElementTree.Element) -> list[Place]:
    """The points of a path, control points included."""
    (path,) = group.iter(f"{SVG}path")
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def outline(group: ElementTree.Element) -> list[Place]:
    """Points along a path of lines and quadratic curves, at most some points apart."""
    (path,) = group.iter(f"{SVG}path")
    found: list[Place] = []
    for command, text in re.findall(r"([MLQCz])([^MLQCz]*)", path.attrib["d"]):
        numbers = [float(number) for number in text.split()]
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        if command == "z":
            ends = [found[0]]
        elif command == "M":
            found.append(ends[0])
            continue
        begin = found[-1]
        for step in range(1, 101):
            hull = [begin, *ends]
            while len(hull) > 1:  # De Casteljau.
                hull = [
                    (x + (u - x) * step / 100, y + (v - y) * step / 100)
                    for (x, y), (u, v) in pairwise(hull)
                ]
            found.append(hull[0])
    return found


def texts(drawing: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def centred_texts(drawing: str) -> list[tuple[float, float, str]]:
    """(x, y, text) of texts that stand on the middle of their base line."""
    return [
        (float(text.attrib["x"]), float(text.attrib["y"]), text.text or "")
        for text in ElementTree.fromstring(drawing).iter(f"{SVG}text")
        if "text-anchor: middle" in text.attrib["style"]
    ]


def overlapping_texts(drawing: str) -> list[tuple[str, str]]:
    """Pairs of centred texts that cover each other. A character is at most 5 wide and 8 high."""
    return [
        (one, other)
        for (x, y, one), (u, v, other) in combinations(centred_texts(drawing), 2)
        if abs(y - v) < 8 and abs(x - u) < 5 * (len(one) + len(other)) / 2
    ]
