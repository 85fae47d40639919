"""Measured errors beside the stated ones, and ratios of methods."""

from __future__ import annotations

from typing import Any

from ..protocol import Results, Verdict


def excessive(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Measured cells whose whole interval is above the stated error."""
    return [at for at in results["measured"] if at["interval"][0] > at["stated"]]


def ratios(results: dict[str, Any]) -> Any:
    """ratio(figure, first, second, users=None): first over second in every cell that has both."""

    def ratio(figure: str, first: str, second: str, users: int | None = None) -> list[float]:
        cells = [at["methods"] for at in results["cells"] if users in (None, at["users"])]
        return [at[first][figure] / at[second][figure] for at in cells if figure in at[first] and figure in at[second]]

    return ratio


def judge(results: Results) -> list[Verdict]:
    """Every measured error, which must not be above the stated one by more than chance."""
    above = excessive(results)
    return [
        Verdict(
            f"epsilon {run['epsilon']:g}, {run['users']:,} users by {run['dim']:,}: measured error",
            f"at most {run['stated']:.4g}, except for chance",
            f"{run['error']:.4g}",
            run not in above,
        )
        for run in results["measured"]
    ]
