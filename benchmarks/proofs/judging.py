"""Fast figures beside the upper ends of their enclosures."""

from __future__ import annotations

from collections.abc import Iterator

from ..protocol import Results, Verdict


def margins(results: Results) -> Iterator[tuple[str, dict[str, float]]]:
    """What was compared, and the spread of its headroom."""
    for seed, figures in results["plans"].items():
        yield from ((f"{name} of random plans, {seed}", figures[name]) for name in ("mu", "delta"))
    yield from ((f"{name}, corners", figures) for name, figures in results["corners"].items() if isinstance(figures, dict))


def judge(results: Results) -> list[Verdict]:
    """Every headroom, which must not be negative where it is least."""
    return [
        Verdict(f"headroom of {what}", "at least 0", f"{figures['least']:.3g}", figures["least"] >= 0)
        for what, figures in margins(results)
    ]
