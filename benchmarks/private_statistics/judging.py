"""Figures beside what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..protocol import Results, Verdict

R2 = {("adult", 0.1): 0.28, ("adult", 1.0): 0.40, ("covtype", 0.1): 0.71, ("covtype", 1.0): 0.744}
# A fit over scikit-learn's Ridge, on the larger data set.
TIMED, TIME = "covtype", 5.0
# Shares of truths that 95 % intervals and bars cover.
INTERVALS, LOGISTIC, BARS = (0.92, 0.98), (0.92, 0.99), (0.90, 0.99)
# Error of default logistic coefficients over their length, everybody asked in every round.
COEFFICIENTS_OF, COEFFICIENTS = "full", 0.1
# Root mean square errors of a classifier's scores in points, at this epsilon.
POINTS_AT, POINTS = 0.5, {"accuracy": 0.45, "AUC": 0.7}
# Noise by diameter over noise by norm, for a diameter of sqrt 2 norms.
NOISE = 0.72
# Mean distance of described quantiles in points of rank, and how much worse a fit with a described schema may be.
RANK, WORSE = 0.5, {"adult": 0.003, "stones": 0.02}


def judge(results: Results) -> list[Verdict]:
    """R^2, times, coverage, errors and noise, each beside the claim about it."""
    found = [*_regressions(results), *_coverage(results), *_logistic(results), *_evaluations(results), *_diameters(results)]
    return [*found, *_summaries(results), *_schemas(results)]


def _regressions(results: Results) -> Iterator[Verdict]:
    for row in results["regressions"]:
        where = f"{row['task']} at epsilon {row['epsilon']:g}"
        yield Verdict(f"R^2 on {where}", f"at least {row['claimed']:g}", f"{row['r2']:.3f}", row["r2"] >= row["claimed"])
        if row["task"] == TIMED:
            ratio = row["time_over_ridge"]
            yield Verdict(f"time on {where}", f"at most {TIME:g} x Ridge", f"{ratio:.1f} x Ridge", ratio <= TIME)


def _coverage(results: Results) -> Iterator[Verdict]:
    for row in results["coverage"]:
        where = f"{row['features']} columns, {row['users']:,} people, epsilon {row['epsilon']:g}"
        yield _covers(f"intervals cover, {where}", row["covered"], INTERVALS)


def _logistic(results: Results) -> Iterator[Verdict]:
    for row in results.get("logistic_coverage", []):
        where = f"{row['features']} columns, {row['users']:,} people, epsilon {row['epsilon']:g}"
        yield _covers(f"logistic intervals cover, {where}", row["covered"], LOGISTIC)
    for row in results.get("logistic_coefficients", []):
        if row["interactivity"] == COEFFICIENTS_OF:
            what, error = f"error of logistic coefficients, {row['interactivity']}", row["error"]
            yield Verdict(what, f"at most {COEFFICIENTS:.0%}", f"{error:.1%}", error <= COEFFICIENTS)


def _evaluations(results: Results) -> Iterator[Verdict]:
    for row in results["evaluations"]:
        where = f"{row['score']} of {row['model']} at epsilon {row['epsilon']:g}"
        if row["epsilon"] == POINTS_AT and row["score"] in POINTS:
            points, limit = row["rmse_points"], POINTS[row["score"]]
            yield Verdict(f"error of {where}", f"at most {limit:g} points", f"{points:.2f} points", points <= limit)
        yield _covers(f"bars of {where} cover", row["covered"], BARS)


def _diameters(results: Results) -> Iterator[Verdict]:
    for row in results["diameters"]:
        what = f"noise of {row['query']}, {row['users']:,} people by {row['dim']:,}"
        limit = NOISE * row["diameter"] / 2**0.5
        yield Verdict(what, f"at most {limit:.3f} of that by norm", f"{row['noise_ratio']:.3f}", row["noise_ratio"] <= limit)


def _summaries(results: Results) -> Iterator[Verdict]:
    errors = [row["error"] for row in results.get("summaries", [])]
    if errors:
        mean = sum(errors) / len(errors)
        yield Verdict("5, 50, 95 % points of Adult", f"within {RANK:g} points of rank", f"{mean:.2f} points", mean <= RANK)


def _schemas(results: Results) -> Iterator[Verdict]:
    for row in results.get("schemas", []):
        what, limit = f"{row['task']}, {row['interactivity']}: described ranges", WORSE[row["task"]]
        found, least = row["described"], row["by_hand"] - limit
        yield Verdict(what, f"at most {limit:g} worse than by hand", f"{found:.4f}, by hand {row['by_hand']:.4f}", found >= least)


def _covers(what: str, share: float, ends: tuple[float, float]) -> Verdict:
    low, high = ends
    return Verdict(what, f"{low:.0%} to {high:.0%}", f"{share:.1%}", low <= share <= high)
