"""The page: what was asked, where Croupier loses, and one table per data set and loss."""

from __future__ import annotations

import statistics
from typing import Any

from ..protocol import Results
from ..tables import table
from . import racing
from .catalogue import (
    DEFAULT,
    DEFAULT_TASKS,
    DELTA,
    LOCAL,
    METHODS,
    NO_PRIVACY,
    OURS,
    PROBLEMS,
    PUBLISHED,
    RACE,
    RACE_SETTINGS,
    RAW,
    SHUFFLED,
    TIMED,
    TITLES,
    UNTUNED,
)
from .judging import Findings, judge, opacus_fits, shown, spread
from .methods import Setting


def headline(results: dict[str, Any]) -> str:
    """All of it in one sentence or two."""
    findings, parts = Findings(results), []
    for problem in ("adult/logistic", "covtype/logistic"):
        if problem in findings.problems:
            best, method = findings.best_central(problem, TIMED)
            full, sequential, default = (shown(findings.score(problem, name, TIMED), problem) for name in (*OURS[:2], DEFAULT))
            central, local = shown(best, problem), shown(findings.score(problem, "PrivUnit", TIMED), problem)
            name = TITLES[problem].split(",")[0]
            once = f"{sequential} % asked once" if default == "-" else f"{default} % asked once, nothing tuned"
            ours = f"{full} % asked in every round and {once}"
            parts.append(f"{name} {ours}, {central} % with a curator ({method}), {local} % local")
    lines = [verdict.holds for verdict in judge(results) if verdict.holds is not None]
    return f"Logistic regression at epsilon = 1: {'; '.join(parts)}. {sum(lines)} of {len(lines)} lines that were asked for hold."


BEHIND = {"Croupier full": 0.005, "Croupier sequential": 0.03, DEFAULT: 0.01}  # of accuracy, or R^2: what is told as behind


def behind(findings: Findings, name: str, within: float) -> list[tuple[str, float, float, str]]:
    """Where a method of ours is further below the best central method: the problem, the epsilon, by how much, and which it is."""
    found = []
    for problem in findings.problems:
        for epsilon in findings.epsilons(problem):
            best, method = findings.best_central(problem, epsilon)
            gap = best - findings.score(problem, name, epsilon)
            found += [(problem, epsilon, gap, method)] if gap > within else []
    return found


def measured(findings: Findings, name: str) -> int:
    """In how many cells a method has a score."""
    return sum(
        bool(findings.fits(problem, name, epsilon)) for problem in findings.problems for epsilon in findings.epsilons(problem)
    )


def gap_words(gap: float, problem: str) -> str:
    """A gap in points, or of R^2."""
    return f"{gap:.3f}" if problem.endswith("ridge") else f"{100 * gap:.1f} points"


def losses(findings: Findings) -> list[str]:
    """Where Croupier is behind, from the figures alone."""
    lines = []
    for name, within in BEHIND.items():
        cells, total = behind(findings, name, within), measured(findings, name)
        if not total:
            continue
        listed = [f"{problem} at {epsilon:g} ({gap_words(gap, problem)}, {method})" for problem, epsilon, gap, method in cells]
        limit = f"{100 * within:g} point{'s' * (within != 0.01)} (R^2: {within:g})"
        text = f"**{name}** is more than {limit} below the best central method in {len(cells)} of {total} cells"
        lines.append(f"{text}: {'; '.join(listed)}." if listed else f"{text}.")
    slow = []
    for problem in findings.problems:
        ours, peers = findings.fits(problem, "Croupier full", TIMED), findings.fits(problem, NO_PRIVACY, None)
        if (ratio := findings.slower(problem, ours, peers)) > 1:
            slow.append(f"{problem} ({ratio:.1f} times)")
    lines.append(f"**Time.** Croupier full takes longer than scikit-learn without privacy on: {', '.join(slow) or 'none'}.")
    quicker = []
    for problem in findings.problems:
        for name in OURS:
            ratio = findings.slower(problem, findings.fits(problem, name, TIMED), findings.fits(problem, "DP-GD", TIMED))
            quicker += [f"{name} {ratio:.1f} times on {problem}"] if ratio > 1 else []
    lines.append(f"A curator's DP-GD in numpy, which makes no bits, is quicker: {'; '.join(quicker) or 'nowhere'}.")
    bits = [
        (fits[0]["bits"] / record_bits(findings, problem), problem)
        for problem in findings.problems
        if (fits := findings.fits(problem, OURS[0], TIMED))
    ]
    if bits:
        most, problem = max(bits)
        text = (
            f"**Bits.** With Croupier full a user sends up to {most:,.0f} times what its record takes as 32-bit numbers ({problem})"
        )
        few = max(
            (fits[0]["bits"] / record_bits(findings, name), name)
            for name in findings.problems
            if (fits := findings.fits(name, OURS[1], TIMED))
        )
        lines.append(f"{text}, with Croupier sequential up to {few[0]:,.1f} times ({few[1]}).")
    return lines


def record_bits(findings: Findings, problem: str) -> int:
    """A record as 32-bit numbers: its features (with the constant, which stands for the target)."""
    about = findings.results["problems"][problem]
    classes = 10 if problem.startswith("mnist") else 1
    return 32 * about["dim"] // classes


HEAD = """# Croupier compared with the alternatives

{versions}. delta = 1e-6 throughout. The rows of every data set are scaled by public constants and divided by their own length; all
methods get the same rows, split and constant column, and all gradient methods the same clipping.{quick}

**How settings were chosen.** Each method tries {settings} settings (one where it has no choice) on the same held-out tenth
of the training rows, at each data set, loss and epsilon, with one seed; the best is fitted to all training rows. Neither choosing
nor anything else looks at a test row before the end. *The choice itself is not paid for in epsilon, for any method*; the rows
"nothing tuned" show what Croupier gives with `rule="plain"` and nothing else set. That, with the encoder that does not rotate, was
the default when these figures were measured. Since then estimators whiten rows of up to 600 columns first, and rotate vectors,
which takes fewer bits. The rows "{default}" show these estimators, nothing tuned, each person asked once, with secure randomness,
on the same rows and test rows (`accuracy.md`). Croupier's settings are tried with Gaussian noise of the same variance instead of
the protocol, for time; its final fits run the protocol. All other randomness is seeded, so that two runs give the same table: these
fits are not private, and nothing is released.

**How to read it.** Accuracy in per cent, or R^2: median (least to most) over the seeds. With five seeds, least to most covers the
true median with probability 94 % (three seeds: 75 %). Time is that of a fit over that of scikit-learn without privacy with the same
seed, at epsilon = 1, one after the other on a shared machine, whose other work is in it; planning and calibration are in it too,
imports and reading data are not. Bits are what one user sends in total, "times asked" in how many rounds; a curator is handed the
record itself. SVM and least squares are fitted where they make sense: MNIST has ten classes, and KDD Cup 99 no numeric target.
Croupier sequential was measured in a later run than the others, except on Covertype, logistic, at epsilon = 1; there its time is
scaled by scikit-learn's in both runs.

## Asked and measured

| | asked | measured | holds |
|---|---|---|---|
"""
METHOD_HEAD = """
## Methods

| method | what | who must be trusted | neighbours | settings tried (first data set) |
|---|---|---|---|---|
"""
TRUST = {
    RAW: "a curator, with every record",
    SHUFFLED: "a shuffler, to mix noisy messages and tell no one whose they are",
    LOCAL: "nobody",
}
TABLE_HEAD = "| method | {epsilons} | time | bits a user | times asked | neighbours | trust |\n|---|{rules}---|---|---|---|---|\n"


def method_table(findings: Findings) -> str:
    """One line per method: what it is, whom it trusts, which settings it tries."""
    lines = []
    for name, method in METHODS.items():
        tried = next((cell["settings"] for cell in findings.results["tuned"] if cell["method"] == name), [])
        words = "; ".join(setting_words(setting) for setting in tried)
        lines.append(f"| {name} | {method.what} | {TRUST[method.trust]} | {method.neighbours} | {words} |\n")
    return "".join(lines)


def setting_words(setting: Setting) -> str:
    """A setting in words."""
    return (
        ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in setting.items())
        or "defaults"
    )


def problem_table(findings: Findings, problem: str) -> str:
    """One data set and loss: every method at every epsilon."""
    about, epsilons = findings.results["problems"][problem], findings.epsilons(problem)
    plain = findings.fits(problem, NO_PRIVACY, None)
    text = f"\n## {TITLES[problem]}\n\n{about['users']:,} users, {about['dim']:,} weights, {about['test_rows']:,} test rows"
    if plain:
        error = plain[0]["test_error"]
        shown_error = f"{error:.3f}" if problem.endswith("ridge") else f"{100 * error:.1f} points"
        text += f"; the choice of test rows is worth ±{shown_error} (95 %)"
        text += f"; scikit-learn takes {statistics.median(fit['seconds'] for fit in plain):.2f} s"
    text += f". Seeds: {len(plain)} at epsilon 1, {min(len(plain), PROBLEMS[problem][4])} elsewhere.\n\n"
    text += TABLE_HEAD.format(epsilons=" | ".join(f"{epsilon:g}" for epsilon in epsilons), rules="---|" * len(epsilons))
    for name, method in METHODS.items():
        if PROBLEMS[problem][1] not in method.losses:
            continue
        if name == NO_PRIVACY:
            text += table_row(findings, problem, name, [plain] + [[]] * (len(epsilons) - 1), [], plain)
            continue
        text += table_row(findings, problem, name, [findings.fits(problem, name, epsilon) for epsilon in epsilons], epsilons, plain)
        if name == "Croupier sequential":
            text += default_row(findings, problem, epsilons)
        if name in OURS and problem in UNTUNED:
            untuned = [findings.fits(problem, name, epsilon, {}) if epsilon == TIMED else [] for epsilon in epsilons]
            text += table_row(findings, problem, f"{name}, nothing tuned", untuned, epsilons, plain)
    return text


def table_row(
    findings: Findings, problem: str, label: str, fits: list[Any], epsilons: list[float], plain: list[dict[str, Any]]
) -> str:
    """One method: its scores, time, bits and promise."""
    method = METHODS[label.removesuffix(", nothing tuned")]
    cells = [spread(some, problem) for some in fits]
    for index, epsilon in enumerate(epsilons):
        if cells[index] == "-" and (why := findings.missing(problem, label, epsilon)):
            cells[index] = f"not run: {why}"
    timed = fits[epsilons.index(TIMED)] if TIMED in epsilons else fits[0]
    sent = timed[0]["bits"] if timed else None
    bits = "-" if not timed else f"{sent:,}" if sent else f"the record ({record_bits(findings, problem):,})"
    times = "-" if not sent else f"{timed[0]['rounds']}" if "full" in label else "1"
    simulated = label.startswith("paper")
    ratio = "-" if simulated or not timed else f"{findings.slower(problem, timed, plain):.2g}"
    label = f"{label} (simulated noise)" if simulated else label
    return f"| {label} | {' | '.join(cells)} | {ratio} | {bits} | {times} | {method.neighbours} | {method.trust} |\n"


def default_row(findings: Findings, problem: str, epsilons: list[float]) -> str:
    """The estimator as it comes, nothing tuned; nothing where it was not measured."""
    cells = [findings.fits(problem, DEFAULT, epsilon) for epsilon in epsilons]
    if not any(cells):
        return ""
    row = findings.defaults.get((DEFAULT_TASKS.get(problem), TIMED), {})
    bits = f"{row['bits_per_user']:,}" if row else "-"
    scores = " | ".join(spread(fits, problem) for fits in cells)
    return f"| {DEFAULT}, asked once | {scores} | - | {bits} | 1 | replace-one | {SHUFFLED} |\n"


def as_they_come_table(findings: Findings) -> str:
    """Times of fits as they come."""
    if "race" not in findings.results:
        return ""
    race, names = findings.results["race"], (DEFAULT, racing.PLAIN, NO_PRIVACY, racing.DOCUMENTED)
    text = RACED.format(turns=len(race["turns"]))
    for name in names:
        score, seconds, cpu = (
            statistics.median(turn[name][what] for turn in race["turns"]) for what in ("score", "seconds", "cpu")
        )
        text += f"| {name} | {100 * score:.1f} | {seconds:.2f} | {cpu:.2f} | {findings.race_ratio(name, DEFAULT):.1f} |\n"
    return text


RACED = """
### A fit as it comes, on Covertype at epsilon = 1

Planning included; medians of {turns} turns on a shared machine, one thread each.

| | accuracy | seconds | of the processor | over a fit by default |
|---|--:|--:|--:|--:|
"""


def race_table(findings: Findings) -> str:
    """Times on the race's data set."""
    plain = findings.fits(RACE, NO_PRIVACY, None)
    if not plain:
        return ""
    rows = {"scikit-learn, no privacy": plain}
    for name in ("Croupier sequential", "Croupier full"):
        for setting in RACE_SETTINGS[name]:
            rows[f"{name}, {setting_words(setting)}"] = findings.fits(RACE, name, TIMED, setting)
        rows[f"{name}, chosen setting"] = findings.fits(RACE, name, TIMED)
    rows["DP-GD"] = findings.fits(RACE, "DP-GD", TIMED)
    rows |= {f"Opacus, {words}": fits for words, fits in opacus_fits(findings).items()}
    text = "\n## Time on Covertype, logistic, epsilon = 1\n\n"
    text += "Opacus as documented reads a TensorDataset row by row; batches at once are our doing: the same rows.\n\n"
    text += "| | rounds | accuracy | seconds | over scikit-learn |\n|---|---|---|---|---|\n"
    for label, fits in rows.items():
        if fits:
            seconds = statistics.median(fit["seconds"] for fit in fits)
            shown_rounds = fits[0]["rounds"] or "-"
            text += (
                f"| {label} | {shown_rounds} | {spread(fits, RACE)} | {seconds:.2f} | {findings.slower(RACE, fits, plain):.2g} |\n"
            )
    return text


def summary(results: Results) -> str:
    """All problems at the timed epsilon, how often Croupier is behind, and the times."""
    findings = Findings(results)
    ours = [*OURS[:2], DEFAULT] if findings.defaults else OURS
    names = [NO_PRIVACY, *ours, *(name for name in METHODS if name != NO_PRIVACY and name not in OURS and "paper" not in name)]
    rows = []
    for problem in findings.problems:
        scores = [shown(findings.score(problem, name, None if name == NO_PRIVACY else TIMED), problem) for name in names]
        rows.append([TITLES[problem].split(":")[0], f"{findings.results['problems'][problem]['users']:,}", *scores])
    said = []
    for name, within in BEHIND.items():
        cells, total = behind(findings, name, within), measured(findings, name)
        if not total or (findings.defaults and name == "Croupier sequential"):  # asked once: told by default, or else tuned
            continue
        limit = f"{100 * within:g} point{'s' * (within != 0.01)} (R^2: {within:g})"
        text = f"- **{name}** is more than {limit} below the best central method in {len(cells)} of {total} cells"
        if cells:
            problem, epsilon, gap, method = max(cells, key=lambda cell: cell[2])
            text += f", most on {problem} at epsilon {epsilon:g} ({gap_words(gap, problem)}, {method})"
        said.append(f"{text}.\n")
    return (
        f"{SUMMARY}\n![Accuracy over epsilon, one panel per data set and loss](peers.svg)\n\n"
        + table(("data, loss", "people", *names), rows, left=1)
        + "\n### Where Croupier loses\n\n"
        + "".join(said)
        + (
            as_they_come_table(findings)
            or "".join(
                line + "\n" for line in race_table(findings).replace("\n## ", "\n### ").split("\n") if ", rounds " not in line
            )
        )
    )


SUMMARY = f"""\
Accuracy in per cent, or R^2 for least squares, at epsilon {TIMED:g}, delta {DELTA:g}; medians over seeds. All methods have the
same rows, split, clipping and number of settings to try; none pays for choosing a setting. Opacus promises add/remove, which is
weaker; with half the epsilon it is replace-one, as all others are. Fits are seeded. Croupier ran
without a rotation; *by default*, estimators ran with their defaults, untuned.
"""

PUBLISHED_HEAD = """
## Beside published figures

Yu, Zhang, Chen, Yin and Liu, "Gradient Perturbation is Underrated for Differentially Private Convex Optimization" (arXiv
1911.11363), Table 2: logistic regression on Adult, epsilon = 0.1, delta = 1 / n^2, replace-one, all with a trusted curator. Their
preparation of the data and their split differ from ours, so a point either way says little.

"""


def published_table(findings: Findings) -> str:
    """Croupier beside published figures."""
    problem, epsilon = PUBLISHED["problem"], PUBLISHED["epsilon"]
    if problem not in findings.problems or findings.results["quick"]:
        return ""
    delta = 1 / findings.results["problems"][problem]["users"] ** 2
    text = PUBLISHED_HEAD
    text += "| method | accuracy | source |\n|---|---|---|\n"
    for name, value in PUBLISHED["accuracy"].items():
        text += f"| {name} | {100 * value:.1f} | published |\n"
    for name in OURS:
        text += (
            f"| {name} | {spread(findings.fits(problem, name, epsilon, delta=delta), problem)} | measured, delta = {delta:.2g} |\n"
        )
    return text


def page(results: Results) -> str:
    """The stored figures as tables, and in words where Croupier is behind."""
    findings = Findings(results)
    versions = ", ".join(f"{name} {version}" for name, version in results["about"].items())
    quick = "\n\n**A quick run**: two settings each, two seeds, epsilon = 1." if results["quick"] else ""
    text = HEAD.format(versions=versions, quick=quick, default=DEFAULT, settings="two" if results["quick"] else "four")
    verdicts = {True: "yes", False: "**no**", None: "-"}
    text += "".join(f"| {what} | {want} | {got} | {verdicts[holds]} |\n" for what, want, got, holds in judge(results))
    missing = [TITLES[name].split(":")[0] for name in PROBLEMS if name not in findings.problems]
    if missing and not results["quick"]:
        text += f"\nNot measured yet: {'; '.join(missing)}.\n"
    text += "\n![Accuracy over epsilon, one panel per data set and loss](peers.svg)\n"
    text += "\n## Where Croupier loses\n\n" + "".join(f"- {line}\n" for line in losses(findings))
    text += METHOD_HEAD + method_table(findings)
    text += "".join(problem_table(findings, problem) for problem in findings.problems)
    return text + as_they_come_table(findings).replace("\n### ", "\n## ") + race_table(findings) + published_table(findings)
