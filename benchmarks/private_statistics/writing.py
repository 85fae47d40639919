"""The page."""

from __future__ import annotations

from ..protocol import Results
from ..tables import table
from .judging import judge
from .measuring import FITS, QUICK_FITS

REGRESSIONS = """\
Least squares (`ShuffleLinearRegression`), medians of {fits} fits with secure randomness, R^2 on held-out people.
The time is that of the fit over scikit-learn's Ridge on the same rows, alternating; the machine is shared.
"""
COVERAGE = """\
Coverage of 95 % intervals, and the share of coefficients that have one; the plan's noise drawn as Gaussian.
"""
LOGISTIC = """\
Logistic regression in three groups (`ShuffleLogit`): coverage of 95 % intervals, and how wide they are beside those of
a fit without privacy; Gaussian noise of the plans.
"""
COEFFICIENTS = """\
Coefficients of default `ShuffleLogisticRegression`s where the truth is [1, -0.5]: medians, and the median length of the
error over that of the truth.
"""
EVALUATIONS = """\
Evaluation of a model on 10,000 people: root mean square error in points, sampling included, and how often 95 % bars
cover. AUC of three classes is the mean of each against the rest. Of a model that predicts the 80 % quantile: the share
of people at or below its prediction, of all people and of those in bins of the prediction that hold 5 % of them or more.
"""
DIAMETERS = """\
Noise of a plan by diameter over that of a plan by norm, both within 1 % of the central mechanism's.
"""
SUMMARIES = """\
Quantiles of Adult's six columns of numbers that a tenth of the people described in one round, from wide guesses, epsilon 1:
mean distance from the share that they are for, in points of rank.
"""
SCHEMAS = """\
Fits at epsilon 1 with ranges that a tenth of the people described at epsilon 1 and that was then set aside, beside fits on
everybody with ranges made by hand: accuracy on Adult, R^2 on synthetic diamonds, where one size in 500 is entered wrongly.
"""


def headline(results: Results) -> str:
    """All of it in one sentence."""
    found = {(row["task"], row["epsilon"]): row for row in results["regressions"]}
    adult, covertype = found["adult", 1.0], found["covtype", 1.0]
    covered = [row["covered"] for row in results["coverage"]]
    return (
        f"Least squares in one round at epsilon 1: R^2 {adult['r2']:.3f} on Adult ({adult['without']:.3f} without privacy), "
        f"{covertype['r2']:.3f} on Covertype ({covertype['without']:.3f}), with 95 % intervals that cover "
        f"{min(covered):.0%} to {max(covered):.0%}."
    )


def summary(results: Results) -> str:
    """Least squares, and scores of models at epsilon 1; the intervals of a logistic regression in a line."""
    parts = [REGRESSIONS.format(fits=QUICK_FITS if results["quick"] else FITS), regressions_table(results)]
    if logistic := results.get("logistic_coverage"):
        covered, width = ([row[name] for row in logistic] for name in ("covered", "width"))
        parts.append(
            f'95 % intervals of `ShuffleLogit` with `method="moments"` cover {min(covered):.0%} to {max(covered):.0%} and are '
            f"{min(width):.2f} to {max(width):.2f} times as wide as without privacy.\n"
        )
    scores = [row for row in results["evaluations"] if row["epsilon"] == 1]
    return "\n".join([*parts, EVALUATIONS, evaluations_table({"evaluations": scores})])


def page(results: Results) -> str:
    """The stored figures as tables, and what is worse than claimed."""
    parts = [
        "# Statistics in one round\n",
        f"croupier {results['version']}; delta = 1e-6, replace-one neighbours, everybody honest.\n",
        REGRESSIONS.format(fits=QUICK_FITS if results["quick"] else FITS),
        regressions_table(results),
        COVERAGE,
        coverage_table(results),
        *logistic_tables(results),
        EVALUATIONS,
        evaluations_table(results),
        DIAMETERS,
        diameters_table(results),
        *([SUMMARIES, summaries_table(results), SCHEMAS, schemas_table(results)] if results.get("schemas") else []),
        conclusion(results),
    ]
    return "\n".join(parts)


def regressions_table(results: Results) -> str:
    """R^2 beside the claim and a fit without privacy, and the time."""
    rows = [
        (
            f"{row['task']} ({row['users']:,})",
            f"{row['epsilon']:g}",
            f"{row['r2']:.3f}",
            f"{row['claimed']:g}",
            f"{row['without']:.3f}",
            f"{row['time_over_ridge']:.1f}",
        )
        for row in results["regressions"]
    ]
    return table(("data", "epsilon", "R^2", "claimed", "without privacy", "time over Ridge"), rows, left=1)


def coverage_table(results: Results) -> str:
    """How often intervals of coefficients cover."""
    rows = [
        (f"{row['features']}", f"{row['users']:,}", f"{row['epsilon']:g}", f"{row['covered']:.1%}", f"{row['told']:.0%}")
        for row in results["coverage"]
    ]
    return table(("columns", "people", "epsilon", "covered", "decided"), rows, left=0)


def logistic_tables(results: Results) -> list[str]:
    """How often intervals of logistic coefficients cover, and default coefficients; empty where they were not measured."""
    if "logistic_coverage" not in results:
        return []
    covered = [
        (
            f"{row['features']}",
            f"{row['users']:,}",
            f"{row['epsilon']:g}",
            f"{row['covered']:.1%}",
            f"{row['told']:.0%}",
            f"{row['width']:.2f}",
        )
        for row in results["logistic_coverage"]
    ]
    coefficients = [
        (
            row["interactivity"],
            f"{row['users']:,}",
            f"{row['epsilon']:g}",
            "[{:.2f}, {:.2f}]".format(*row["coef"]),
            f"{row['error']:.1%}",
        )
        for row in results["logistic_coefficients"]
    ]
    return [
        LOGISTIC,
        table(("columns", "people", "epsilon", "covered", "decided", "width"), covered, left=0),
        COEFFICIENTS,
        table(("interactivity", "people", "epsilon", "coefficients", "error"), coefficients, left=1),
    ]


def evaluations_table(results: Results) -> str:
    """Errors of scores, and how often their bars cover."""
    rows = [
        (row["model"], row["score"], f"{row['epsilon']:g}", f"{row['rmse_points']:.2f}", f"{row['covered']:.0%}")
        for row in results["evaluations"]
    ]
    return table(("model", "score", "epsilon", "error, points", "covered"), rows, left=2)


def diameters_table(results: Results) -> str:
    """Noise by diameter beside noise by norm."""
    rows = [
        (row["query"], f"{row['diameter']:.3f}", f"{row['users']:,}", f"{row['dim']:,}", f"{row['noise_ratio']:.3f}")
        for row in results["diameters"]
    ]
    return table(("query", "diameter / norm", "people", "coordinates", "noise ratio"), rows, left=1)


def summaries_table(results: Results) -> str:
    """Distances of described quantiles in points of rank."""
    rows = [(f"{100 * row['point']:g} %", f"{row['error']:.2f}") for row in results["summaries"]]
    return table(("quantile", "error, points of rank"), rows, left=1)


def schemas_table(results: Results) -> str:
    """Scores with described ranges beside those with ranges made by hand."""
    rows = [
        (f"{row['task']} ({row['users']:,})", row["interactivity"], f"{row['described']:.4f}", f"{row['by_hand']:.4f}")
        for row in results["schemas"]
    ]
    return table(("data", "interactivity", "described", "by hand"), rows, left=2)


def conclusion(results: Results) -> str:
    """Whether all is as claimed, unless the run was quick."""
    if results["quick"]:
        return "A quick run: nothing is judged.\n"
    worse = [f"{verdict.what}: {verdict.measured}" for verdict in judge(results) if verdict.holds is False]
    return f"Worse than claimed: {'; '.join(worse)}.\n" if worse else "All as claimed.\n"
