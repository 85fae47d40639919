"""The page: one table, and what stands behind its rows."""

from __future__ import annotations

from statistics import median
from typing import Any

from croupier.privacy._statements import exact, round_up

from ..protocol import Results
from ..tables import table
from .judging import accuracy, judge

NAMES = {
    "croupier": "Croupier, secret lots and masked sums",
    "flower": "Flower's own, known batches",
    "none": "no noise, no clip",
}
TRUST = {
    "croupier": "that server and mask analyzer do not pool what they have",
    "flower": "the server, which sees every update",
    "none": "the server, and everybody who sees the model",
}


def headline(results: Results) -> str:
    """All of it in one sentence."""
    found = {method: f"{accuracy(results, method):.1%}" for method in results["rows"]}
    settings = results["settings"]
    small = "At small sizes only (the full one is not measured yet), a" if results["quick"] else "A"
    return (
        f"{small} network of {settings['weights']:,} weights learned from {settings['devices']:,} devices, each asked once, reads "
        f"{found['croupier']} of MNIST's test digits at epsilon {exact(settings['epsilon'])}; with Flower's own noise "
        f"{found.get('flower', '(not measured yet)')}, without noise or clip {found.get('none', '(not measured yet)')}."
    )


def summary(results: Results) -> str:
    """The table, and what was asked for."""
    rows = []
    for method, row in results["rows"].items():
        tests = [run["test"] for run in row["runs"]]
        spread = f"{min(tests):.3f} to {max(tests):.3f}"
        rows.append([NAMES[method], f"{accuracy(results, method):.4f}", spread, f"{row['rate']:g}", TRUST[method]])
    watched = results["plan"]["watched_epsilon"]
    promise = "there is no promise" if watched is None else f"epsilon is {round_up(watched)}"
    rates, runs = ", ".join(f"{rate:g}" for rate in results["rates"]), len(results["rows"]["croupier"]["runs"])
    said = [
        f"Median of {runs} runs at the server rate that was best on held-out devices, of {rates} for every method.",
        f"Neighbours are zero-out. To the Flower server, which knows when each device answered, {promise}.",
        "The run without noise has no clip either, which changes how training goes: it is no upper limit.",
        *(f"{one.what[0].upper()}{one.what[1:]}: {one.measured} (asked for: {one.limit})." for one in judge(results)[:2]),
        *(
            f"A report of {one['weights']:,} weights takes {one['cpu_seconds']:.2f} s and {one['share']:.0%} of float32's bytes"
            + (f", as one of {one['blocks']} blocks." if one["blocks"] > 1 else ".")
            for one in results["device"][1:]
        ),
    ]
    heads = ["method", "test accuracy", "runs", "rate", "must trust"]
    return table(heads, rows) + "\n" + "".join(f"- {line}\n" for line in said)


PAGE = """# A network across devices

`python -m benchmarks flower --data DIR` (croupier {croupier}, flwr 1.41.0, torch 2.13.0). MNIST, {devices:,} devices of {images}
images, a convolutional network of {weights:,} weights, {rounds} rounds. Each device is asked once and takes {epochs} epochs in
batches of {batch} at rate {local_rate:g}; updates are clipped at {clip:g}; neighbours are zero-out. All methods have FedAvgM with
momentum {momentum:g} at the server and try the same rates ({rates}). The columns of rates are accuracies on the images of further
devices, which choose (bold). {runs} of each method at its rate.{ends}{size}

{table}
- **Croupier**: the product's mod, strategy and mask analyzer, through Flower's messages, with secure randomness. Noise {noise:.3f}
  clips in a round of {reports} reports, certified delta {certified}; to the Flower server, which knows when each device answered,
  {watched}. {bits} bits per weight.
- **Flower's own**: `DifferentialPrivacyClientSideFixedClipping` around FedAvg with noise multiplier {multiplier:.3f}, that of the
  Gaussian mechanism for one release. Batches are disjoint and known, so that one release counts for a device; Flower's accountant
  adds up all {rounds} and would ask for more noise. FedAvgM steps around it: inside it, noise would be added after the step, and
  not grow with the rate.
- **No noise, no clip**: FedAvgM on known batches, too. It is not an upper limit: a clip by itself changes how training
  goes, and was not tried without noise.

What a report costs a device (`python -m benchmarks flower --device`; training and the plan's proof not included; the slowest of
three reports; memory of the whole process, update included), as CroupierStrategy plans by default. Time by the clock is that of a
machine which others kept busy:

{device}
{verdicts}
All runs here go through Flower's messages, client app, mods and strategies in one process, {seconds:.0f} s of CPU time for one of
Croupier's; not through its simulation engine, under which the tests run the apps of `examples/flower`. {tried}
"""
SMALL = """

**These are the small sizes of `--quick`, at one rate.** The 5 000 devices and 20 rounds that 0.925 is asked of have not been
measured to the end: see the table at the bottom. Nothing here says that it is reached."""
TRIED = """Activation, clip, epochs and momentum
were chosen before, by eleven runs with Gaussian noise in place of Croupier's on the same held-out devices (test accuracy was
printed beside it): ReLU or tanh, 1 to 5 epochs at rates 0.1 and 0.2, batches of 4 or 11, clips from 0.05 to 0.4, server rates from
1.5 to 8, falling or not. The other methods were tuned in the server rate alone."""


def page(results: Results) -> str:
    """The figures as Markdown."""
    plan, rates, runs = results["plan"], results["rates"], results["rows"]["croupier"]["runs"]
    verdicts = [[one.what, one.limit, one.measured, "yes" if one.holds else "NO"] for one in judge(results)]
    heads = ["", "epsilon", "delta", "test accuracy", "least", "most", *(f"rate {rate:g}" for rate in rates), "must trust"]
    return PAGE.format(
        **results["settings"],
        croupier=results["about"]["croupier"],
        rates=", ".join(f"{rate:g}" for rate in rates),
        runs="One run" if len(runs) == 1 else f"{len(runs)} runs",
        table=table(heads, [row_of(method, results) for method in results["rows"]], left=1),
        noise=plan["noise_std"],
        reports=plan["reports_in_round"],
        certified=round_up(plan["certified_delta"]),
        watched="there is no promise" if plan["watched_epsilon"] is None else f"epsilon is {round_up(plan['watched_epsilon'])}",
        bits=plan["bits"],
        multiplier=results["multiplier"],
        verdicts=table(["asked for", "limit", "measured", "holds"], verdicts, left=4),
        seconds=median(run["cpu_seconds"] for run in runs),
        tried=TRIED,
        ends=ends(results),
        size=SMALL if results["quick"] else "",
        device=table(COSTS, [cost_of(one) for one in results["device"]]),
    )


def ends(results: Results) -> str:
    """Which methods chose the first or the last rate: a wider choice might serve them better."""
    least, most = min(results["rates"]), max(results["rates"])
    there = [f"{NAMES[method]} ({row['rate']:g})" for method, row in results["rows"].items() if row["rate"] in (least, most)]
    return f"\nAt an end of the grid, so that others might be better: {'; '.join(there)}." if there and least < most else ""


COSTS = ["weights", "blocks", "CPU", "by the clock", "memory", "report", "of float32", "noise, clips", "epsilon to the server"]


def cost_of(cost: dict[str, Any]) -> list[str]:
    """One row of what reports cost."""
    watched = cost["watched_epsilon"]
    return [
        f"{cost['weights']:,}",
        str(cost["blocks"]),
        f"{cost['cpu_seconds']:.3f} s",
        f"{cost['wall_seconds']:.3f} s",
        f"{cost['megabytes']:.0f} MB",
        f"{cost['report_bytes']:,} B",
        f"{cost['share']:.1%}",
        f"{cost['noise_std']:.3f}",
        "no promise" if watched is None else round_up(watched),
    ]


def row_of(method: str, results: Results) -> list[str]:
    """One method's row of the table."""
    settings, row = results["settings"], results["rows"][method]
    found = [run["test"] for run in row["runs"]]
    promise = ["none", ""] if method == "none" else [exact(settings["epsilon"]), exact(settings["delta"])]
    spread = [f"{min(found):.4f}", f"{max(found):.4f}"] if len(found) > 1 else ["", ""]
    tried = zip(results["rates"], row["tried"], strict=True)
    held_out = [f"**{one:.4f}**" if rate == row["rate"] else f"{one:.4f}" for rate, one in tried]
    return [NAMES[method], *promise, f"**{median(found):.4f}**", *spread, *held_out, TRUST[method]]
