"""The settings' mean scores, and what is chosen with each table left out."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..protocol import Results, Verdict
from ..tables import table


def means(results: Results, kind: str, default: str, what: str = "scores") -> dict[str, dict[str, float]]:
    """Mean scores or losses over seeds, by table with epsilon and setting, of tables with this default."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in results["cells"]:
        if (cell["kind"], cell["default"]) == (kind, default):
            for setting, value in cell.get(what, {}).items():
                scores[f"{cell['table']}, epsilon {cell['epsilon']:g}"][setting].append(value)
    return {name: {setting: float(np.mean(some)) for setting, some in found.items()} for name, found in scores.items()}


def left_out(found: dict[str, dict[str, float]], default: str) -> list[tuple[str, str, float]]:
    """For every table: the setting that is best on other tables that have it, and what it gains over the default on this one."""
    chosen = []
    for name, own in found.items():
        others = [scores for other, scores in found.items() if other.split(", ")[0] != name.split(", ")[0]]
        if not others:
            continue
        best = max(own, key=lambda setting: float(np.mean([scores.get(setting, -np.inf) - scores[default] for scores in others])))
        chosen.append((name, best, own[best] - own[default]))
    return chosen


def kinds(results: Results) -> list[str]:
    """The kinds of problems that were measured."""
    return list(dict.fromkeys(cell["kind"] for cell in results["cells"]))


def judge(results: Results) -> list[Verdict]:
    """The default is better than the plain rule on every table, and no other choice on the rest gains a point on a table."""
    verdicts = []
    for kind in kinds(results):
        for default in sorted({cell["default"] for cell in results["cells"] if cell["kind"] == kind}):
            found = means(results, kind, default)
            for name, own in found.items():
                gain = own[default] - own["plain"]
                verdicts.append(Verdict(f"{kind}, {name}: {default} above plain", "above 0", f"{gain:+.4f}", gain > 0))
            for name, own in means(results, kind, default, "losses").items():
                more = own[default] - own["a constant"]
                verdicts.append(
                    Verdict(f"{kind}, {name}: log-loss above a constant's", "at most 0.03", f"{more:+.4f}", more <= 0.03)
                )
            for name, best, gain in left_out(found, default):
                what = f"{kind}: {best!r}, chosen without {name}, above the default there"
                verdicts.append(Verdict(what, "at most 0.01", f"{gain:+.4f}", gain <= 0.01))
    return verdicts


def page(results: Results) -> str:
    """Scores of every cell, then the verdicts."""
    lines = []
    grouped: dict[tuple[str, str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in results["cells"]:
        for setting, value in cell["scores"].items():
            grouped[cell["kind"], cell["table"], cell["epsilon"]][setting].append(value)
    defaults = {(cell["kind"], cell["table"], cell["epsilon"]): cell["default"] for cell in results["cells"]}
    for (kind, name, epsilon), scores in grouped.items():
        default = defaults[kind, name, epsilon]
        marked = {setting: f"**{setting}**" if setting == default else setting for setting in scores}
        lost = means(results, kind, default, "losses").get(f"{name}, epsilon {epsilon:g}", {})
        told = {setting: f" ({lost[setting]:.3f})" for setting in lost}
        shown = ", ".join(f"{marked[setting]} {np.mean(some):.4f}{told.get(setting, '')}" for setting, some in scores.items())
        shown += f", a constant{told['a constant']}" if told else ""
        lines.append((kind, name, f"{epsilon:g}", shown))
    verdicts = [(v.what, v.limit, v.measured, {True: "yes", False: "NO", None: ""}[v.holds]) for v in judge(results)]
    return "\n".join(
        [
            "# Which practical rule\n",
            f"croupier {results['version']}; delta = 1e-6, replace-one, everybody honest. Accuracy, or R^2 of least squares, on",
            "held-out training rows; means over seeds. Bold is the default rule; settings beside the rules change it in one place.",
            "Plans are those of a default fit by messages; `never noisy` and `never faint` save bits wherever they can,",
            "`openings at` and `gradients at` have that much noise where a run is not noisy. Tables of many columns were measured",
            "with one seed. In brackets: log-loss of several classes.\n",
            table(("kind", "table, people", "epsilon", "scores"), lines, left=4),
            table(("what", "asked", "measured", "holds"), verdicts),
        ]
    )
