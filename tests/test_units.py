from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from skyplane_orchestration import units

LIBRARY = Path(__file__).resolve().parents[1] / "src" / "skyplane_orchestration"
FACTORS = (8, 10**9, 2**30, 3600)
amounts = st.floats(min_value=1e-6, max_value=1e9)


def test_a_gigabyte_is_eight_gigabits() -> None:
    assert units.gb_to_gbit(2.5) == 20
    assert units.usd_per_gb_to_usd_per_gbit(0.08) == pytest.approx(0.01)


def test_a_price_per_gib_is_lower_per_gb() -> None:
    assert units.usd_per_gib_to_usd_per_gb(0.09) == pytest.approx(0.0838190317)


def test_rates_and_hours() -> None:
    assert units.gbps_of(10**9, 2) == 4
    assert units.usd_per_hour_to_usd_per_s(7.2) == pytest.approx(0.002)
    assert units.gb_to_bytes(1.5) == 1_500_000_000
    assert units.mib_to_bytes(16) == 16 * 1024 * 1024


@given(amounts)
def test_prices_have_an_inverse_conversion(amount: float) -> None:
    price = units.usd_per_gb_to_usd_per_gbit(amount)
    assert units.usd_per_gbit_to_usd_per_gb(price) == pytest.approx(amount)


def stray_factors(source: str) -> Iterator[tuple[int, object]]:
    """Lines on which a factor between units stands as a literal.

    3600, 1e9 and 2**30 are factors wherever they stand; 8 is one where it multiplies or
    divides (it may well be a number of things elsewhere).
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in FACTORS[1:]:
            yield node.lineno, node.value
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
                for side in (node.left, node.right):
                    if isinstance(side, ast.Constant) and side.value == FACTORS[0]:
                        yield node.lineno, side.value
            try:
                value = ast.literal_eval(ast.Constant(eval(ast.unparse(node), {})))
            except (NameError, SyntaxError, TypeError, ValueError):
                continue
            if value in FACTORS[1:]:
                yield node.lineno, value


@pytest.mark.parametrize(
    "line", ["x = y * 8", "x = y / 1e9", "z = 1024**3", "z = 1 << 30", "t = 60 * 60", "t = 3600"]
)
def test_the_search_for_strays_finds_them(line: str) -> None:
    assert list(stray_factors(line))


@pytest.mark.parametrize("line", ["x = key[:8]", "threads = 8", "x = 'a' * width", "x = y / 1000"])
def test_the_search_for_strays_leaves_the_rest_alone(line: str) -> None:
    assert not list(stray_factors(line))


def test_no_other_module_of_the_library_has_a_factor_of_its_own() -> None:
    strays = [
        f"{path.relative_to(LIBRARY)}:{line}: {value}"
        for path in sorted(LIBRARY.rglob("*.py"))
        if path != LIBRARY / "units.py"
        for line, value in stray_factors(path.read_text(encoding="utf-8"))
    ]
    assert strays == []
