"""What the stored fits say, in the words of the page, and the lines that it is judged by."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from ..protocol import Results, Verdict
from . import racing
from .catalogue import (
    AGAIN,
    AS_DOCUMENTED,
    CENTRAL,
    DEFAULT,
    DEFAULT_TASKS,
    DELTA,
    NO_PRIVACY,
    RACE,
    RACE_SETTINGS,
    SEED,
    TIMED,
    TITLES,
)
from .methods import Setting


class Findings:
    """The stored results, asked in the words of the page; "defaults" are rows of the estimators as they come, if there are any."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results, self.problems = results, list(results["problems"])
        self.defaults = {(row["task"], row["epsilon"]): row for row in results.get("defaults", [])}
        self.tuned = {(cell["problem"], cell["method"], cell["epsilon"], cell["delta"]): cell for cell in results["tuned"]}

    def fits(
        self, problem: str, method: str, epsilon: float | None, setting: Setting | None = None, delta: float | None = DELTA
    ) -> list[dict[str, Any]]:
        """The final fits, seed by seed: with the setting that was chosen, or with this one. Of estimators as they come, three."""
        if method == DEFAULT:
            row = self.defaults.get((DEFAULT_TASKS.get(problem), epsilon), {})
            return [{"score": row[which]} for which in ("least", "median", "most") if row]
        about = (problem, method, epsilon, None if epsilon is None else delta)
        if setting is None:
            setting = self.tuned.get(about, {}).get("setting")
        every = [fit for fit in self.results["fits"] if (fit["problem"], fit["method"], fit["epsilon"], fit["delta"]) == about]
        return [fit for fit in every if fit["setting"] == setting and "score" in fit and not fit.get("again")]

    def score(self, problem: str, method: str, epsilon: float | None, setting: Setting | None = None) -> float:
        """The median; NaN where there is none."""
        fits = self.fits(problem, method, epsilon, setting)
        return statistics.median(fit["score"] for fit in fits) if fits else math.nan

    def slower(self, problem: str, fits: list[dict[str, Any]], others: list[dict[str, Any]]) -> float:
        """How many times as long these took as the others, seed by seed; the median."""
        other = {fit["seed"]: fit["seconds"] for fit in others}
        return statistics.median(fit["seconds"] / other[fit["seed"]] for fit in fits) if fits and others else math.nan

    def race_ratio(self, name: str, other: str, what: str = "cpu") -> float:
        """How many times as long one took as the other in the race of fits as they come, turn by turn; the median."""
        return statistics.median(turn[name][what] / turn[other][what] for turn in self.results["race"]["turns"])

    def best_central(self, problem: str, epsilon: float) -> tuple[float, str]:
        found = [(self.score(problem, method, epsilon), method) for method in CENTRAL]
        return max(((score, method) for score, method in found if not math.isnan(score)), default=(math.nan, "none"))

    def missing(self, problem: str, method: str, epsilon: float) -> str | None:
        cell = self.tuned.get((problem, method, epsilon, DELTA))
        return cell.get("missing") if cell else None

    def epsilons(self, problem: str) -> list[float]:
        return sorted({epsilon for name, _, epsilon, delta in self.tuned if name == problem and epsilon and delta == DELTA})


def shown(value: float, problem: str) -> str:
    """A score as people write it: per cent, or R^2."""
    if math.isnan(value):
        return "-"
    if problem.endswith("ridge"):
        return f"{value:.3f}" if value > -10 else "below -10"
    return f"{100 * value:.1f}"


def spread(fits: list[dict[str, Any]], problem: str) -> str:
    """The median of some fits' scores, with the least and the most."""
    if not fits:
        return "-"
    scores = [fit["score"] for fit in fits]
    return f"{shown(statistics.median(scores), problem)} ({shown(min(scores), problem)} to {shown(max(scores), problem)})"


def judge(results: Results) -> list[Verdict]:
    """The lines that the page is judged by; where nothing was asked, it is only told."""
    findings, lines = Findings(results), []
    for problem in ("adult/logistic", "covtype/logistic"):
        if problem in findings.problems:
            best, method = findings.best_central(problem, TIMED)
            local = findings.score(problem, "PrivUnit", TIMED)
            for name, within in (("Croupier full", 0.005), ("Croupier sequential", 0.03)):
                ours = findings.score(problem, name, TIMED)
                what = f"{TITLES[problem].split(',')[0]}: {name} below the best central method ({method}, {shown(best, problem)} %)"
                lines.append(
                    Verdict(
                        what,
                        f"at most {100 * within:g} points",
                        f"{round(100 * (best - ours), 1) + 0.0:.1f}",
                        ours >= best - within,
                    )
                )
                what = f"{TITLES[problem].split(',')[0]}: {name} above local privacy (PrivUnit, {shown(local, problem)} %)"
                lines.append(Verdict(what, "at least 5 points", f"{100 * (ours - local):.1f}", ours >= local + 0.05))
    lines += as_they_come(findings)
    if RACE in findings.problems:
        lines += raced(findings)
    twice = [fit for fit in findings.results["fits"] if fit.get("again")]
    if twice:
        first = {(fit["method"], json.dumps(fit["setting"])): fit["weights"] for fit in findings.results["fits"] if same_seed(fit)}
        same = sum(fit["weights"] == first[fit["method"], json.dumps(fit["setting"])] for fit in twice)
        lines.append(
            Verdict(
                "the same fit twice gives the same weights, bit for bit", f"all {len(twice)} methods", str(same), same == len(twice)
            )
        )
    return lines


def as_they_come(findings: Findings) -> list[Verdict]:
    """Every cell of estimators as they come, or where none was measured of those that were tuned, each person asked once; and the
    time of a fit."""
    lines = []
    for problem in findings.problems:
        for epsilon in findings.epsilons(problem):
            best, method = findings.best_central(problem, epsilon)
            name = DEFAULT if findings.fits(problem, DEFAULT, epsilon) else "Croupier sequential"
            gap = best - findings.score(problem, name, epsilon)
            if not math.isnan(gap) and findings.defaults:
                what = f"{problem}, epsilon {epsilon:g}: {name} below the best central method ({method}, {shown(best, problem)})"
                limit, found = ("0.01", f"{gap:.3f}") if problem.endswith("ridge") else ("1 point", f"{100 * gap:.1f}")
                lines.append(Verdict(what, f"at most {limit}", found, gap <= 0.01))
    if "race" in findings.results:
        for name, asked in {NO_PRIVACY: 10, racing.DOCUMENTED: 30}.items():
            ratio = findings.race_ratio(name, DEFAULT)
            what = f"Covertype, as it comes: processor time of {name} over that of {DEFAULT}"
            lines.append(Verdict(what, f"at least {asked}", f"{ratio:.1f}", ratio >= asked))
        ratio = findings.race_ratio(DEFAULT, racing.PLAIN)
        what = f"Covertype: processor time of {DEFAULT} over that of {racing.PLAIN}"
        lines.append(Verdict(what, "at most 1.5", f"{ratio:.2f}", ratio <= 1.5))
    return lines


def same_seed(fit: dict[str, Any]) -> bool:
    """Whether this is the first of the fits that are made twice."""
    return fit["problem"] == AGAIN and fit["seed"] == SEED and not fit.get("again") and "weights" in fit and fit["do"] == "timed"


def raced(findings: Findings) -> list[Verdict]:
    """Wall time on Covertype, in the same run. Asked is a comparison with Opacus as it is documented; with batches fetched at once,
    which is our doing, it is told."""
    plain, sequential = findings.fits(RACE, NO_PRIVACY, None), findings.fits(RACE, "Croupier sequential", TIMED)
    ratio = findings.slower(RACE, plain, sequential)
    lines = [Verdict("Covertype: scikit-learn's time over that of Croupier sequential", "above 1", f"{ratio:.1f}", ratio > 1)]
    best, _ = findings.best_central(RACE, TIMED)
    rounds, near = fastest_as_good(findings, "Croupier sequential", best - 0.003)
    near_what = f"over that of Croupier sequential within 0.3 points of the best central method ({rounds})"
    ratio = findings.slower(RACE, plain, near)
    lines.append(Verdict(f"Covertype: scikit-learn's time {near_what}", "at least 10", f"{ratio:.1f}", ratio >= 10))
    for words, opacus in opacus_fits(findings).items():
        if not opacus:
            continue
        documented = words == AS_DOCUMENTED
        ratio = findings.slower(RACE, opacus, sequential)
        what = f"Covertype: time of Opacus, {words}, over that of Croupier sequential"
        lines.append(Verdict(what, "at least 10" if documented else "-", f"{ratio:.1f}", ratio >= 10 if documented else None))
        ratio = findings.slower(RACE, opacus, near)
        what = f"Covertype: time of Opacus, {words}, {near_what}"
        lines.append(Verdict(what, "at least 30" if documented else "-", f"{ratio:.1f}", ratio >= 30 if documented else None))
        tolerance = math.sqrt(2) * plain[0]["test_error"]  # what the test rows cannot tell
        rounds, full = fastest_as_good(findings, "Croupier full", statistics.median(fit["score"] for fit in opacus) - tolerance)
        ratio = findings.slower(RACE, opacus, full)
        what = f"Covertype: time of Opacus, {words}, over that of Croupier full at the same accuracy ({rounds})"
        lines.append(Verdict(what, "at least 3" if documented else "-", f"{ratio:.1f}", ratio >= 3 if documented else None))
    return lines


def opacus_fits(findings: Findings) -> dict[str, list[dict[str, Any]]]:
    """Opacus on the race's data set, as it is documented and with batches fetched at once."""
    setting = findings.tuned.get((RACE, "Opacus", TIMED, DELTA), {}).get("setting", {})
    return {
        AS_DOCUMENTED: findings.fits(RACE, "Opacus", TIMED, {**setting, "loader": "plain"}),
        "batches fetched at once": findings.fits(RACE, "Opacus", TIMED),
    }


def fastest_as_good(findings: Findings, method: str, score: float) -> tuple[str, list[dict[str, Any]]]:
    """The fastest fits of a method whose accuracy is at least so much."""
    choices = [findings.fits(RACE, method, TIMED, setting) for setting in [*RACE_SETTINGS[method], {}, None]]
    good = [fits for fits in choices if fits and statistics.median(fit["score"] for fit in fits) >= score]
    if not good:
        return "none is as accurate", []
    fits = min(good, key=lambda fits: statistics.median(fit["seconds"] for fit in fits))
    return f"{fits[0]['rounds']} rounds", fits
