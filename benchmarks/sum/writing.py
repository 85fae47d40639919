"""The page: errors and bits in tables, and in words where Croupier loses and wins."""

from __future__ import annotations

from typing import Any

from ..protocol import Results
from ..tables import table
from .judging import ratios
from .measuring import CENTRAL, GAUSSIAN_16, LOCAL, MASKED, METHODS, OURS, PAPER, SHUFFLED, SKELLAM_16, SKELLAM_ENOUGH


def page(results: Results) -> str:
    """The stored figures as tables, and in words where Croupier loses."""
    quick = " A quick run: a small grid and few seeds." if results["quick"] else ""
    parts = [
        "# The mean of private vectors\n",
        f"croupier {results['version']}, delta = {results['delta']:g}, by `python -m benchmarks sum`.{quick}\n",
        INTRODUCTION,
        "![Error and bits per user over the number of users, one column per dimension](sum.svg)\n",
        "## Where Croupier loses\n",
        *(f"- {line}" for line in losses(results)),
        "\n## Where it wins\n",
        *(f"- {line}" for line in wins(results)),
        "\n## Error\n",
        "Root mean squared l2 error of the mean of vectors of length 1. An answer of 0 would be wrong by at most 1.\n",
        grid_table(results, "error"),
        "\n## Bits per user\n",
        grid_table(results, "bits"),
        "\n## Measured\n",
        f"The protocol itself with seeded randomness, and the {100 * results['confidence']:g} % interval of its error. The stated",
        "error is for the worst input; on these vectors rounding costs less than at its worst, so a little below 1 is expected.\n",
        measured_table(results),
        "\n## What each is\n",
        *(f"- **{name}**: {WHAT[name]}" for name in METHODS),
    ]
    return "\n".join(parts) + "\n"


INTRODUCTION = """\
Users hold vectors of length at most 1; the mean is wanted. Neighbours differ in one user's vector (replace-one), for every method.
Figures of others follow from their published accounting, by formulas that tests check by a second route; they are for vectors of
length 1 that may all be equal, and choices that are left open (grid, cap, orders) are made in their favour. Nothing but Croupier
was run. Bits are payload: keys, shares of masks, envelopes and labels are not counted for anybody.
"""

WHAT = {
    CENTRAL: """\
a trusted curator with the analytic Gaussian mechanism (Balle and Wang 2018); sensitivity 2 for replace-one. 64 bits a number.""",
    OURS: """\
`plan_sum(..., rotation=None)`: the fewest bits of the plain encoder with at most 5 % more noise than the curator's. The default
  since these figures, a rotation, takes fewer bits where there are many coordinates. Replace-one by its own proof. Must trust: a
  shuffler. Deployed, a bit travels in an envelope of 49 bytes (`messages`).""",
    MASKED: """\
the same plan, and the same error, where a user's count of ones in each coordinate travels masked, modulo the least power of two
  that holds the count of all users (`masked-sum`, the deployed default). Must trust: a shuffler and an analyzer that do not pool
  what they see. Around the payload a report has 128 bytes, whatever the plan: a header and the sealed seed of the mask.""",
    PAPER: """\
Theorem 3.2 of the paper with its printed constants (`calibration="paper"`). Replace-one.""",
    SKELLAM_16: """\
secure aggregation modulo 2^16 with Skellam noise (Agarwal, Kairouz and Liu 2021): random Hadamard rotation to the next power of
  two, conditional rounding (beta = e^-1/2), the Renyi bound of Corollary 3.6 over whole orders. Published for a vector that becomes
  0 (add-remove); for replace-one the sensitivity of the rounded vectors is doubled. The grid minimises noise, rounding and
  wrapping together for a sum as long as n (where vectors are known to cancel, a shorter range and fewer bits do). Must trust: the
  aggregation's cryptography and enough honest users; it takes several rounds of interaction.""",
    SKELLAM_ENOUGH: """\
the same with the fewest bits at which its error is within 5 % of its own at 60 bits.""",
    GAUSSIAN_16: """\
the same with discrete Gaussians (Kairouz, Liu and Steinke 2021), Proposition 14; sensitivity doubled likewise. Every user's own
  noise must be half a grid step or more.""",
    SHUFFLED: """\
PrivUnit (Bhowmick et al. 2018, at the cap that Asi, Feldman and Talwar 2022 prove optimal) with the largest epsilon_0 that
  shuffling amplifies to epsilon by the numerical bound of *Hiding Among the Clones* (Feldman, McMillan and Talwar 2021). That
  bound is for replace-one and any randomizer; bounds made for one randomizer can be better, and the sharper general one of 2023
  has an erratum. Must trust: a shuffler. 64 bits a number; a message can be compressed to about a seed (Feldman, Talwar 2021).""",
    LOCAL: """\
PrivUnit at epsilon, without shuffler. Local privacy is replace-one by definition. Must trust: nobody.""",
}


def grid_table(results: Results, figure: str) -> str:
    """One figure, error or bits, of every method over the grid."""
    heads = ("epsilon", "coordinates", "users", *METHODS)
    rows = ["| " + " | ".join(heads) + " |", "|---" * 3 + "|--:" * len(METHODS) + "|"]
    for at in results["cells"]:
        found = [at["methods"][name] for name in METHODS]
        cells = [f"{at['epsilon']:g}", f"{at['dim']:,}", f"{at['users']:,}"]
        rows.append(
            "| " + " | ".join(cells + ["not covered" if "refused" in one else in_short(one[figure]) for one in found]) + " |"
        )
    return "\n".join(rows)


def measured_table(results: dict[str, Any]) -> str:
    """Measured errors beside the stated ones."""
    rows = ["| epsilon | coordinates | users | runs | stated | measured | measured / stated |", "|---|---|---|---|--:|--:|--:|"]
    for at in results["measured"]:
        low, high = (end / at["stated"] for end in at["interval"])
        where = f"| {at['epsilon']:g} | {at['dim']:,} | {at['users']:,} | {at['runs']} |"
        ratio = f"{at['error'] / at['stated']:.3f} ({low:.3f} to {high:.3f})"
        rows.append(f"{where} {at['stated']:.4g} | {at['error']:.4g} | {ratio} |")
    return "\n".join(rows)


def losses(results: dict[str, Any]) -> list[str]:
    """What others do better, from the figures."""
    ratio, count = ratios(results), len(results["cells"])
    widths = [at["methods"][SKELLAM_ENOUGH]["modulus_bits"] for at in results["cells"]]
    ours = [at["methods"][OURS]["bits"] / at["dim"] for at in results["cells"]]
    more = sum(value > 1 for value in ratio("bits", OURS, SHUFFLED))
    counts = [at["methods"][MASKED]["modulus_bits"] for at in results["cells"]]
    against = ratio("bits", MASKED, SKELLAM_ENOUGH)
    said = [
        f"**Bits, {SKELLAM_16}**: Croupier sends {ranged(ratio('bits', OURS, SKELLAM_16))} times as many bits; as a masked sum "
        f"{ranged(ratio('bits', MASKED, SKELLAM_16))} times.",
        f"**Bits, {SKELLAM_ENOUGH}**: {min(widths)} to {max(widths)} bits per coordinate (before padding) give secure aggregation "
        f"{ranged(ratio('error', SKELLAM_ENOUGH, OURS), 2)} times Croupier's error; Croupier's messages take {min(ours):.0f} to "
        f"{max(ours):,.0f} bits. With many users they grow nearly like sqrt(n), those of aggregation like log n.",
        f"**Bits, {SKELLAM_ENOUGH}, like for like**: both hide a count modulo a power of two, and both masks come from seeds that "
        f"are not counted here. Croupier's masked sum takes {min(counts)} to {max(counts)} bits per coordinate and is not padded: "
        f"{ranged(against)} times the bits, more than aggregation in {sum(value > 1 for value in against)} of {count} cells.",
        f"**Bits, {SHUFFLED}**: Croupier sends {ranged(ratio('bits', OURS, SHUFFLED))} times as many bits, more than the 64 a "
        f"coordinate in {more} of {count} cells; and one message can be compressed to about a seed.",
        f"**Error, {CENTRAL}**: Croupier's is {ranged(ratio('error', OURS, CENTRAL), 3)} times as large, as asked for.",
    ]
    for name in (SKELLAM_16, GAUSSIAN_16, SKELLAM_ENOUGH, SHUFFLED, LOCAL):
        lower = [value for value in ratio("error", name, OURS) if value < 1]
        if lower:
            said.append(
                f"**Error, {name}**: lower than Croupier's in {len(lower)} of {count} cells, by up to {1 - min(lower):.1%}."
            )
    return [*said, "**Trust**: the local model needs no shuffler, and secure aggregation none that sees messages one by one."]


def wins(results: dict[str, Any]) -> list[str]:
    """What Croupier does better, from the figures."""
    ratio = ratios(results)
    few, many = (extreme(at["users"] for at in results["cells"]) for extreme in (min, max))
    said = []
    for name in (SKELLAM_16, GAUSSIAN_16, SHUFFLED, LOCAL):
        first, last = (ranged(ratio("error", name, OURS, users)) for users in (few, many))
        why = "; 16 bits cannot hold the sum of so many" if name in (SKELLAM_16, GAUSSIAN_16) else ""
        said.append(f"**Error, {name}**: {first} times Croupier's at {few:,} users, {last} times at {many:,}{why}.")
    against = ratio("bits", MASKED, SKELLAM_ENOUGH)
    said.append(
        f"**Bits, {SKELLAM_ENOUGH}**: as a masked sum Croupier takes fewer bits in {sum(value < 1 for value in against)} of "
        f"{len(against)} cells, by up to {1 - min(against):.0%}. Part of that is padding to a power of two, which it does not need."
    )
    more = (ranged(ratio(figure, PAPER, OURS)) for figure in ("error", "bits"))
    return [*said, "**{}**: {} times the error, {} times the bits.".format(PAPER[0].upper() + PAPER[1:], *more)]


def headline(results: dict[str, Any]) -> str:
    """All of it in one sentence."""
    ratio = ratios(results)
    return (
        f"The error of a private mean is {ranged(ratio('error', OURS, CENTRAL), 2)} times a trusted curator's, for "
        f"{ranged(ratio('bits', MASKED, SKELLAM_ENOUGH))} times the bits of secure aggregation that does about as well (as a "
        f"masked sum; {ranged(ratio('bits', OURS, SKELLAM_ENOUGH))} times as single messages)."
    )


def summary(results: Results) -> str:
    """Error over the curator's and bits per coordinate at the middle epsilon, and where Croupier loses."""
    epsilons = sorted({at["epsilon"] for at in results["cells"]})
    epsilon = epsilons[len(epsilons) // 2]
    errors, bits = (OURS, SKELLAM_ENOUGH, SHUFFLED, LOCAL, PAPER), (OURS, MASKED, SKELLAM_ENOUGH)
    rows = []
    for at in (at for at in results["cells"] if at["epsilon"] == epsilon):
        cells = [f"{at['dim']:,}", f"{at['users']:,}"]
        for figure, names, unit in (("error", errors, at["methods"][CENTRAL]["error"]), ("bits", bits, at["dim"])):
            found = [at["methods"][name] for name in names]
            cells += ["not covered" if "refused" in one else in_short(one[figure] / unit) for one in found]
        rows.append(cells)
    heads = ("coordinates", "users", *(f"error: {name}" for name in errors), *(f"bits: {name}" for name in bits))
    parts = [
        f"Errors over a trusted curator's, and payload bits per user and coordinate, at epsilon {epsilon:g},",
        f"delta {results['delta']:g}, replace-one. Only Croupier was run, without a rotation; other figures follow from published",
        "accounting, open choices made in the others' favour.\n",
        "![Error and bits per user over the number of users, one column per dimension](sum.svg)\n",
        table(heads, rows, left=0),
        "### Where Croupier loses\n",
        *(f"- {line}" for line in losses(results)),
    ]
    return "\n".join(parts) + "\n"


def ranged(values: list[float], digits: int | None = None) -> str:
    """The least and the greatest; to `digits` decimals, or in short."""
    low, high = (f"{value:.{digits}f}" if digits is not None else in_short(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def in_short(value: float) -> str:
    """Three significant figures below 100, whole numbers up to a million, then powers of ten."""
    if 100 <= value < 1e6:
        return f"{value:,.0f}"
    return (f"{value:.1e}" if value >= 1e6 else f"{value:.3g}").replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
