"""No printed epsilon, delta, mu, honest fraction or number of users is on the unsafe side of the exact value, anywhere.

A surface is a text that a person or a program reads; `SURFACES` names all of them, each with the exact values that it prints. Every
figure of a text is found by what stands beside it, and compared with the nearest of these values: losses and assumptions may be
printed larger, never smaller; lower bounds smaller, never larger; numbers of users as they are. A figure that stands for none of
the values is a failure, and so is a value that no figure stands for.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import html
import io
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

import croupier as cr
from croupier.audit import empirical_audit
from croupier.audit.empirical import EmpiricalAudit
from croupier.cli import main
from croupier.cli.processes import JsonLines
from croupier.cli.terminal import rounds_shown
from croupier.estimator import BudgetWarning, PrivacyAccount, ShuffleLogisticRegression, WeakPrivacyWarning
from croupier.optimizer.result import Round
from croupier.privacy import Guarantee, LotsPlan, SumPlan, plan_sum
from croupier.privacy._filter import Caps, gaussian_bound
from croupier.privacy._ledger import BudgetExceededError
from croupier.protocol import VectorSum
from croupier.protocol.shuffler import BatchTooSmallError
from croupier.report import html_report
from croupier.service.analyzer.dashboard import page, run_state
from croupier.service.client.budget import BudgetLimit, DeviceBudget
from croupier.service.client.client import Client
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import RefusedTaskError, Task
from croupier.statistics._holdout import HoldOut, Part
from croupier.table import Schema, TableModel
from croupier.table.schema import Described
from croupier.validation import ArgumentError

SOURCE = Path(cr.__file__).parent
NUMBER = r"(inf|\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)"
USERS = 16_606
# How much larger than it is a figure may be printed: it is rounded to three digits or more.
SLOPPY = 1.011

# What stands beside a figure, and which kinds its groups are of. In this order: what was found is taken out of the text.
PATTERNS = [
    (rf"would notice mu >= {NUMBER}", ["mu"]),
    (rf"mu >= {NUMBER}", ["least mu"]),
    (rf"epsilon >= {NUMBER} at delta {NUMBER}", ["least epsilon", "least delta"]),
    (rf"\({NUMBER}, {NUMBER}\)-(?:differentially private|DP)", ["epsilon", "delta"]),
    (rf"probability of {NUMBER} \((?:delta|1 in)", ["delta"]),
    (rf"1 in {NUMBER}", ["one in"]),
    (rf"\d+ x epsilon(?: =)? {NUMBER}", ["pure epsilon"]),
    (rf'"(?:certified_)?delta": "?{NUMBER}', ["delta"]),
    (rf'"pure_epsilon": {NUMBER}', ["pure epsilon"]),
    (rf'"(epsilon|mu|slack)(?:_claimed)?": "?{NUMBER}', ["name", ""]),
    (rf'"honest": {NUMBER}', ["honest"]),
    (rf'"(?:honest_users|users)": {NUMBER}', ["users"]),
    (rf"epsilon(?: =|:)? {NUMBER}", ["epsilon"]),
    (rf"delta(?: =|:)? {NUMBER}", ["delta"]),
    (rf"\bmu(?: =| <=)? {NUMBER}", ["mu"]),
    (rf"slack(?: =)? {NUMBER}", ["slack"]),
    (rf"factor of (?:at most )?{NUMBER}", ["factor"]),
    (rf"right at most {NUMBER} ?%", ["percent guess"]),
    (rf"best guess ?{NUMBER} ?%", ["percent guess"]),
    (rf"[Aa]t least {NUMBER} ?% of", ["percent honest"]),
    (rf"honest (?:fraction|=) {NUMBER}", ["honest"]),
    (r"[Aa]t least (0\.\d+) of the users", ["honest"]),
    (rf"shuffler, {NUMBER} of users", ["honest"]),
    (rf"at least {NUMBER} of {NUMBER}", ["users", "users"]),
    (rf"(?:users =|all) {NUMBER}", ["users"]),
    (rf"{NUMBER}\)? (?:of {NUMBER} )?(?:users|people)", ["users", "users"]),
    (rf"less than {NUMBER}", ["less than"]),
]


def figures(text: str) -> list[tuple[str, float]]:
    """Every figure in a text, with its kind."""
    found: list[tuple[str, float]] = []

    def take(match: re.Match[str], kinds: list[str]) -> str:
        groups = match.groups()
        if kinds[0] == "name":
            kinds, groups = [groups[0]], groups[1:]
        for kind, group in zip(kinds, groups, strict=True):
            if group is not None:
                value = float(group.replace(",", ""))
                found.append((kind.removeprefix("percent "), value / 100) if kind.startswith("percent ") else (kind, value))
        return " # "

    for pattern, kinds in PATTERNS:
        text = re.sub(pattern, lambda match, kinds=kinds: take(match, kinds), text)
    return found


def is_safe(kind: str, printed: float, values: tuple[float, ...]) -> bool:
    """Whether a printed figure stands for the nearest of these values, on its safe side; rounding of floats is forgiven."""
    printed, tiny = 1 / printed if kind == "one in" else printed, 1e-12
    value = min(values, key=lambda value: abs(printed - value), default=math.nan)
    if kind == "users":
        return printed == value
    if kind.startswith("least ") or kind == "less than":
        return value / SLOPPY <= printed <= value
    return value * (1 - tiny) <= printed <= value * SLOPPY


Values = dict[str, tuple[float, ...]]


def together(*parts: dict[str, float | tuple[float, ...]]) -> Values:
    """Exact values of several promises."""
    made: Values = {}
    for part in parts:
        for kind, value in part.items():
            made[kind] = (*made.get(kind, ()), *(value if isinstance(value, tuple) else (value,)))
    return made


def proof(guarantee: Guarantee, epsilon: float | None = None, delta: float = 1e-6) -> Values:
    """What a guarantee is printed as: the pair that was asked for, which it must keep, or its epsilon at a delta."""
    assert epsilon is None or guarantee.delta(epsilon) <= delta
    pair = (guarantee.epsilon(delta) if epsilon is None else epsilon, delta)
    known = watched(guarantee, delta) if epsilon is None else {}
    return together(dict(zip(("epsilon", "delta"), pair, strict=True)), fields(guarantee), known)


def fields(guarantee: Guarantee) -> Values:
    mu = tuple(one.mu for one in guarantee.allocations) or guarantee.mu
    return together({"mu": mu, "slack": guarantee.slack, "honest": guarantee.honest})


def all_fields(guarantee: Guarantee) -> Values:
    """The same as JSON has them, with those of the second promise of secret lots."""
    known = fields(guarantee.watched) if guarantee.watched else {}
    return together(fields(guarantee), {"mu": guarantee.mu} if guarantee.allocations else {}, known)


def watched(guarantee: Guarantee | None, delta: float) -> Values:
    """Where lots are secret, what holds to an attacker who also knows when each user answered."""
    if guarantee is None or guarantee.watched is None:
        return {}
    return together({"epsilon": guarantee.watched.epsilon(delta), "delta": delta})


def meaning(epsilon: float, delta: float, guarantee: Guarantee | None = None) -> Values:
    """What follows from a promise for those who read it."""
    odds = math.exp(epsilon)
    guess = (odds + delta) / (1 + odds) if guarantee is None else (1 + guarantee.delta(0.0)) / 2
    return together({"factor": odds, "one in": delta, "guess": guess})


@dataclasses.dataclass(frozen=True)
class Case:
    """Awkward values, and everything that prints them."""

    epsilon: float
    delta: float
    honest: float
    interactivity: str
    folder: Path

    @property
    def asked(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta, "honest": self.honest}

    @property
    def options(self) -> list[str]:
        return [word for name, value in self.asked.items() for word in (f"--{name}", repr(value))]


class Made:
    """What a case makes, once for all surfaces."""

    def __init__(self, case: Case) -> None:
        self.case = case
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(USERS, 2)) / 3
        self.y = self.X[:, 0] > 0
        self.fresh = ShuffleLogisticRegression(**case.asked, classes=[False, True], interactivity=case.interactivity, rounds=2)
        self.model = ShuffleLogisticRegression(**self.fresh.get_params()).fit(self.X, self.y)
        self.plan = plan_sum(**case.asked, users=USERS, dim=3)
        self.estimate = VectorSum(self.plan).run(np.zeros((USERS, 3)))
        table = {"x": self.X[:, 0], "z": self.X[:, 1], "ill": np.where(self.y, "yes", "no")}
        arrow_csv.write_csv(pa.table(table), case.folder / "people.csv")
        facts = '[target]\ncolumn = "ill"\nclasses = ["no", "yes"]\n'
        facts += "".join(f"[columns.{name}]\nlow = -2\nhigh = 2\n" for name in "xz")
        (case.folder / "facts.toml").write_text(facts)
        how = ["--interactivity", case.interactivity, "--rounds", "2", "-o", "model.json"]
        self.fitted = self.croupier("fit", "people.csv", "--schema", "facts.toml", *case.options, *how)
        self.file = TableModel.load(case.folder / "model.json").estimator
        public = Ed25519PrivateKey.generate().public_key()
        problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=3, radius=5.0))
        schedule = cr.schedule(problem, USERS, **case.asked, rounds=2, interactivity=case.interactivity, lots="open")
        self.task = Task("masked-sum", USERS, TrainingQuery(problem), schedule, public, patience=60.0)

    def croupier(self, *arguments: str) -> str:
        """All that a command prints."""
        out = io.StringIO()
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
        wide = {"COLUMNS": "400"}
        with (
            mock.patch.object(sys, "argv", ["croupier", *arguments]),
            mock.patch.dict("os.environ", wide),
            contextlib.chdir(self.case.folder),
            streams[0],
            streams[1],
            contextlib.suppress(SystemExit),
        ):
            main()
        return out.getvalue()


def said(error: type[Exception], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def warned(warning: type[Warning], act: Callable[[], object]) -> str:
    with pytest.warns(warning) as caught:
        act()
    return " ".join(str(entry.message) for entry in caught if issubclass(entry.category, warning))


# --- surfaces that need a line or two -------------------------------------------------------------------------------------------


def page_words(text: str) -> str:
    """What a page shows, without its markup; descriptions of figures are read aloud, so they count."""
    text = re.sub(r"<(style|script).*?</\1>", " ", text, flags=re.DOTALL)
    text = re.sub(r"<(?:text|title)\b.*?</(?:text|title)>", " ", text, flags=re.DOTALL)  # ticks of axes
    text = re.sub(r"<figcaption>The same.*?</figcaption>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


Surface = tuple[str, Values]


def explained(model: ShuffleLogisticRegression, case: Case) -> Surface:
    guarantee = getattr(model, "guarantee_", None) if hasattr(model, "result_") else None
    users = together({"users": USERS}) if guarantee else {}
    planned = model.schedule_.guarantee if hasattr(model, "result_") else None
    known = watched(planned, case.delta)
    return model.explain(), together(case.asked, meaning(case.epsilon, case.delta, guarantee), users, known)


def report(made: Made) -> Surface:
    model, case = made.model, made.case
    text = page_words(html_report(model)).replace(f"{model.schedule_.phases[0].rounds} of ", "")
    return text, together(
        case.asked,
        proof(model.guarantee_, case.epsilon, case.delta),
        meaning(case.epsilon, case.delta, model.guarantee_),
        watched(model.guarantee_, case.delta),
        {"users": USERS if model.schedule_.secret_lots else (USERS, model.schedule_.phases[0].batch)},
    )


def dashboard_values(made: Made) -> Values:
    guarantee, case = made.task.schedule.guarantee, made.case
    return together(case.asked, proof(guarantee, case.epsilon, case.delta), meaning(case.epsilon, case.delta, guarantee))


def dashboard(made: Made) -> Surface:
    """The state as the page gets it."""
    state, plan = run_state(made.task, [], None), made.task.schedule.phases[0].plan
    planned = made.task.schedule.guarantee.epsilon(made.case.delta)
    text = f"epsilon {state['privacy']['epsilon']}, delta {state['privacy']['delta']}; {state['promise']}; {state['plan']}"
    return text, together(dashboard_values(made), {"epsilon": planned, "users": (plan.users, plan.honest_users)})


def dashboard_page(made: Made) -> Surface:
    """The promise on the page itself, whose script sets these words as they are."""
    sent = page(run_state(made.task, [], None))
    words = json.loads(re.search(r'"promise": (\{.*?\})', sent)[1])
    return " ".join(words.values()), dashboard_values(made)


def progress_bar(made: Made) -> Surface:
    """What it says of the whole run."""
    schedule = cr.schedule(made.task.query.problem, USERS, **made.case.asked, rounds=1, interactivity="full")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, color_system=None)
    with rounds_shown(schedule, made.case.delta, console, True) as show:
        show(Round(index=1, phase=1, users=USERS, theta=np.zeros(3), gradient=np.ones(3)))
    text = re.sub(r"\d+:\d\d:\d\d", "", out.getvalue().split("round 1/1")[-1])  # the clock
    return text, together({"epsilon": schedule.guarantee.epsilon(made.case.delta), "users": USERS})


def game(made: Made) -> EmpiricalAudit:
    """A game that finds something: Gaussian noise in place of the protocol, for a guarantee of its own."""
    rng, claim = np.random.default_rng(1), Guarantee(mu=2 + made.case.epsilon, theorem="a Gaussian")
    return empirical_audit(lambda other: rng.normal() + claim.mu * other, claim=claim, delta=made.case.delta, trials=500)


def audited(made: Made) -> Surface:
    found = game(made)
    lower = {"least mu": found.mu_lower, "least epsilon": found.epsilon_lower, "least delta": found.delta}
    return str(found), together(lower, {"mu": (found.mu_claimed, found.mu_detectable)})


def audit_command(made: Made, *options: str) -> Surface:
    """A small plan, since its laws are enumerated. What the game found, and what was enumerated, no other run finds: left out."""
    few = {"honest": HONEST_HERE, "users": 150, "trials": 100}
    words = [word for name, value in few.items() for word in (f"--{name}", str(value))]
    text = " ".join(made.croupier("audit", *made.case.options[:4], *words, *options).split())
    plan = plan_sum(epsilon=made.case.epsilon, delta=made.case.delta, honest=HONEST_HERE, users=150, dim=2)
    if options:
        return text, together(plan_values(plan), {"mu": plan.mu})
    text = re.sub(r"The game shows .*? rate of \S+", "", text)
    text = re.sub(r"│ (?:delta|mu) [^ ]+ +│ (?=delta|mu)", "", text)
    return text, together(proof(plan.guarantee, made.case.epsilon, made.case.delta), {"delta": plan.certified_delta})


def paper_plan(made: Made) -> Surface:
    """A guarantee of another form: randomized responses, which compose."""
    case, rounds = made.case, 3
    plan = plan_sum(epsilon=case.epsilon, delta=case.delta, users=USERS, dim=3, rounds=rounds, calibration="paper")
    guarantee = plan.guarantee
    values = together({"epsilon": case.epsilon, "delta": case.delta})
    return str(plan), together(values, {"pure epsilon": guarantee.pure_epsilon, "slack": guarantee.slack})


def seeded(made: Made) -> Surface:
    """NOT PRIVATE; the figures are those that secure randomness would have promised."""
    model = ShuffleLogisticRegression(**made.fresh.get_params() | {"random_state": 0}).fit(made.X, made.y)
    text, values = explained(model, made.case)
    assert text.splitlines()[2].startswith("NOT PRIVATE")
    return text, together(values, CROWD)


def log_line(made: Made) -> Surface:
    """The refusal of a batch with one user too few, as a server logs it."""
    plan = made.plan
    text = said(BatchTooSmallError, lambda: VectorSum(plan).check_round(plan.honest_users - 1))
    line = JsonLines().format(logging.LogRecord("croupier", logging.ERROR, "", 0, "refused: %s", (text,), None))
    return line, together({"users": (plan.honest_users - 1, plan.honest_users, plan.users)})


def refused_task(made: Made) -> Surface:
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    limits = {"max_epsilon": 0.98 * made.case.epsilon, "max_delta": made.case.delta}
    client = Client("http://127.0.0.1:1", "token", key, folder=made.case.folder / "client", **limits)
    revealed = made.task.schedule.guarantee.epsilon(made.case.delta)
    text = said(RefusedTaskError, lambda: client.demands.check(made.task))
    return text, together({"epsilon": revealed, "delta": made.case.delta})


def device_budget(made: Made) -> Surface:
    """A device's ledger as JSON: the task's own epsilon, and the odometer's for everything."""
    delta, limit = made.case.delta, 2 * made.case.epsilon
    budget = DeviceBudget(made.case.folder / "budget.json")
    budget.allow(BudgetLimit(limit, delta, 86400.0))
    guarantee = made.model.guarantee_
    budget.charge("a task", "", "ab" * 32, guarantee)
    used = BudgetLimit(limit, delta, 86400.0).caps.use([gaussian_bound(guarantee)])
    values = budget.to_dict()
    for name, share in zip(("used of mu^2", "used of slack"), used, strict=True):
        assert share <= float(values["limit"].pop(name)) <= SLOPPY * share
    text = json.dumps(values) + f" {budget.limit()}"
    every = (guarantee.epsilon(delta), budget.spent(), limit, limit)
    return text, together({"epsilon": every, "delta": (delta, delta, delta, delta)})


def device_refusal(made: Made) -> Surface:
    """A limit that a second task would break; by how much is no promise, and left out."""
    budget = DeviceBudget(made.case.folder / "full.json")
    budget.allow(BudgetLimit(made.case.epsilon, made.case.delta, 86400.0))
    budget.charge("a task", "", "ab" * 32, made.model.guarantee_)
    text = said(RefusedTaskError, lambda: budget.check("another", made.model.guarantee_))
    return re.sub(r"would be \S+ times", "", text), together({"epsilon": made.case.epsilon, "delta": made.case.delta})


def account(made: Made) -> Surface:
    counted = PrivacyAccount(epsilon=2 * made.case.epsilon, delta=made.case.delta)
    counted.charge("a fit", USERS, made.model.guarantee_)
    used_mu, used_slack = Caps.of_limit(2 * made.case.epsilon, made.case.delta).use([gaussian_bound(made.model.guarantee_)])
    text = str(counted)
    assert used_mu <= float(re.search(rf"used {NUMBER} of its mu", text)[1]) <= SLOPPY * used_mu
    assert used_slack <= float(re.search(rf"and {NUMBER} of its slack", text)[1]) <= SLOPPY * used_slack
    watched = max(2 * made.case.epsilon, counted.spent_if_watched())  # never the smaller figure: that would be chosen after looking
    return text, together({"epsilon": (2 * made.case.epsilon, watched), "delta": made.case.delta})


def account_of_parts(made: Made) -> Surface:
    """Two sides of a split: what each has, and the worse of both."""
    aside = Part(HoldOut(0.25, "3" * 32), "aside", rows=USERS)
    counted = PrivacyAccount(delta=made.case.delta)
    counted.of_part(aside).charge("a description", aside.users, made.estimate.guarantee)
    counted.of_part(aside.other).charge("a fit", aside.other.users, made.plan.guarantee)
    counted.charge("a score", USERS, made.plan.guarantee)
    people = {"users": (aside.users, aside.other.users)}
    epsilons = {"epsilon": (counted.spent(), counted.spent(part=aside), counted.spent(part=aside.other))}
    return str(counted), together(epsilons, {"delta": made.case.delta}, people)


def described(made: Made, *options: str) -> Surface:
    """What `croupier describe` says of those who were set aside, in the terminal, in the schema, and in a fit with it."""
    guesses = ["--range", "x=-4..4", "--range", "z=-4..4", "--target", "ill", "--levels", "ill=no,yes", "--share", "0.5"]
    text = made.croupier("describe", "people.csv", *made.case.options, *guesses, "-o", "described.toml", "--force", *options)
    if "noise hides every quantile" in text:  # too few honest people: nothing was asked, and nothing is promised
        assert not (made.case.folder / "described.toml").exists()
        return "", {}
    schema = (made.case.folder / "described.toml").read_text()
    asked = Schema.load(made.case.folder / "described.toml").described.users
    promised = {"epsilon": made.case.epsilon, "delta": made.case.delta, "users": (asked, USERS)}
    if options:  # JSON: exactly the values
        values = json.loads(text[text.index("{") :])  # after what columns are taken for, on standard error
        return json.dumps({"users": values["users"], "guarantee": values["guarantee"]}), together(
            {"users": asked, "pure epsilon": 0.0}, all_fields(Guarantee.from_dict(values["guarantee"]))
        )
    words = "\n".join(line for line in (*text.splitlines(), *schema.splitlines()) if "epsilon" in line or "people" in line)
    return words, together(promised)


def described_fit(made: Made) -> Surface:
    """What a fit with a described schema says of both sides."""
    release = Described(made.case.epsilon, made.case.delta, 8_303, aside=HoldOut(0.5, "3" * 32), rows=USERS)
    everybody = Described(made.case.epsilon, made.case.delta, USERS)
    twice = {"epsilon": (made.case.epsilon, 2 * made.case.epsilon), "delta": (made.case.delta, 2 * made.case.delta)}
    lines = [release.origin, everybody.origin, *release.lines((1.0, 1e-6))]
    lines += everybody.lines((made.case.epsilon, made.case.delta))
    return "\n".join(lines), together(twice, {"users": (8_303, USERS)})


def all_watched(counted: PrivacyAccount) -> Values:
    """What all fits of an account leave to somebody who watches, where lots were secret; never less than to others."""
    if not counted.has_secret_lots:
        return {}
    assert counted.spent_if_watched() >= counted.spent()
    return together({"epsilon": counted.spent_if_watched()})


def exceeded(made: Made) -> Surface:
    """A limit that the second fit would break; by how much is no promise, and left out."""
    full = PrivacyAccount(epsilon=made.case.epsilon, delta=made.case.delta)
    full.charge("a fit", USERS, made.model.guarantee_)
    text = said(BudgetExceededError, lambda: full.charge("a fit", USERS, made.model.guarantee_))
    return re.sub(r"delta would be \S+", "", text), together({"epsilon": made.case.epsilon, "delta": made.case.delta})


def second_fit(made: Made) -> Surface:
    """The same people twice: what both fits reveal together."""
    model = ShuffleLogisticRegression(**made.fresh.get_params()).fit(made.X, made.y)
    text = warned(BudgetWarning, lambda: model.fit(made.X, made.y))
    both = PrivacyAccount(delta=made.case.delta)
    for what in ("a fit", "another"):
        both.charge(what, USERS, model.guarantee_, unit=model.unit_)
    return text, together({"epsilon": both.spent(), "delta": made.case.delta}, all_watched(both))


def public_report(made: Made) -> Surface:
    """The report with a comparison, which names other epsilons."""
    _, values = report(made)
    other, rows = 2.3456123, slice(2000)
    longer = html_report(made.model, X=made.X[rows], y=made.y[rows], data_is_public=True, epsilons=[other])
    text = page_words(longer).replace(f"{made.model.schedule_.phases[0].rounds} of ", "")
    return text, together(values, {"epsilon": other})


def weak(made: Made) -> Surface:
    """An epsilon that hardly promises anything, said with its factor to one digit."""
    epsilon = 10.0 + made.case.epsilon
    model = ShuffleLogisticRegression(**made.fresh.get_params() | {"epsilon": epsilon})
    text = warned(WeakPrivacyWarning, lambda: model.fit(made.X, made.y)).replace("epsilon 1 is", "")
    factor = float(re.search(rf"factor of {NUMBER}", text)[1].replace(",", ""))
    assert math.exp(epsilon) <= factor <= 2 * math.exp(epsilon)
    return text.replace("factor of", ""), together({"epsilon": epsilon})


def too_large_delta(made: Made) -> Surface:
    model = ShuffleLogisticRegression(**made.fresh.get_params() | {"delta": 0.5})
    text = said(ArgumentError, lambda: model.fit(made.X, made.y)).replace("delta = 0.5", "").replace("delta = 1 / users", "")
    return text.replace("less than 1 / users =", "less than"), together({"less than": 1 / USERS})


def too_small_delta(made: Made) -> Surface:
    guarantee = made.model.guarantee_
    text = said(ArgumentError, lambda: guarantee.epsilon(guarantee.slack / 2)).replace(f"delta = {guarantee.slack / 2!r}", "")
    return text.replace("greater than", "slack"), together({"slack": guarantee.slack})


def planned(made: Made, *options: str) -> str:
    return made.croupier("plan", *made.case.options, "--users", str(USERS), "--dim", "3", *options)


# --- all surfaces: a name, the text and the exact values that it prints ----------------------------------------------------------

CROWD = {"users": USERS}
HONEST_HERE = 0.9
SURFACES: dict[str, Callable[[Made], Surface]] = {
    "explain": lambda made: explained(made.model, made.case),
    "explain before a fit": lambda made: explained(made.fresh, made.case),
    "explain, seeded": seeded,
    "print(model)": lambda made: (
        str(made.model),
        together(made.case.asked, CROWD, watched(made.model.guarantee_, made.case.delta)),
    ),
    "print(model) before a fit": lambda made: (str(made.fresh), together(made.case.asked)),
    "print(guarantee)": lambda made: (str(made.model.guarantee_), proof(made.model.guarantee_)),
    "guarantee as JSON": lambda made: (
        made.model.guarantee_.to_json(),
        together(all_fields(made.model.guarantee_), {"pure epsilon": 0.0}),
    ),
    "print(plan)": lambda made: (
        str(made.plan),
        together(made.case.asked, proof(made.plan.guarantee, made.case.epsilon, made.case.delta)),
    ),
    "print(plan), the paper's": paper_plan,
    "print(schedule)": lambda made: (
        str(made.model.schedule_),
        {} if made.model.schedule_.secret_lots else together({"users": made.model.schedule_.phases[0].batch}),
    ),
    "print(result)": lambda made: (str(made.model.result_), together(proof(made.model.guarantee_), CROWD)),
    "print(estimate)": lambda made: (str(made.estimate), together(proof(made.plan.guarantee), CROWD)),
    "print(account)": account,
    "print(account), parts": account_of_parts,
    "croupier describe": described,
    "croupier describe --json": lambda made: described(made, "--json"),
    "a schema that was described": described_fit,
    "print(audit)": audited,
    "HTML report": report,
    "HTML report on public rows": public_report,
    "dashboard's state": dashboard,
    "dashboard's page": dashboard_page,
    "croupier plan": lambda made: (
        planned(made),
        together(
            {"epsilon": made.case.epsilon, "delta": (made.case.delta, made.plan.certified_delta)},
            {"mu": made.plan.mu, "slack": made.plan.slack, "users": (USERS, made.plan.honest_users)},
        ),
    ),
    "croupier plan --compare": lambda made: (planned(made, "--compare"), together(made.case.asked, CROWD)),
    "croupier plan --json": lambda made: (planned(made, "--json"), plan_values(made.plan)),
    "croupier audit": audit_command,
    "croupier audit --json": lambda made: audit_command(made, "--json"),
    "croupier fit": lambda made: (
        made.fitted,
        together(
            made.case.asked,
            CROWD,
            watched(made.file.guarantee_, made.case.delta),
        ),
    ),
    "croupier show": lambda made: (
        made.croupier("show", "model.json"),
        together(
            made.case.asked,
            meaning(made.case.epsilon, made.case.delta, made.file.guarantee_),
            CROWD,
            watched(made.file.guarantee_, made.case.delta),
        ),
    ),
    "model file": lambda made: (
        (made.case.folder / "model.json").read_text(),
        together(
            made.case.asked,
            plan_values(made.file.schedule_.phases[0].plan),
            all_fields(made.file.guarantee_),
            lots_values(made.file.schedule_.phases[0].lots),
            CROWD,
        ),
    ),
    "progress bar": progress_bar,
    "log": log_line,
    "refusal of a task": refused_task,
    "a device's ledger": device_budget,
    "refusal by a device's budget": device_refusal,
    "refusal by an account": exceeded,
    "refusal of a large delta": too_large_delta,
    "refusal of a small delta": too_small_delta,
    "warning of a weak promise": weak,
    "warning of a second fit": second_fit,
}

CASES = {
    "one in a hundred honest": (0.123456789, 1.23456e-7, 0.0149, "full"),
    "a third honest": (1.23456123, 1.2345649e-7, 0.33333333, "sequential"),
}


def plan_values(plan: SumPlan) -> Values:
    """What a plan's JSON holds: exactly the values."""
    names = {"epsilon": plan.epsilon, "delta": (plan.delta, plan.certified_delta), "mu": plan.mu, "slack": plan.slack}
    return together(names, {"honest": plan.honest, "users": (plan.users, plan.honest_users), "pure epsilon": plan.pure_epsilon})


def lots_values(lots: LotsPlan | None) -> Values:
    """The same of secret lots: what one round is planned for, and the whole run."""
    if lots is None:
        return {}
    whole = {"epsilon": lots.epsilon, "delta": (lots.delta, lots.certified_delta), "honest": lots.honest, "users": lots.users}
    return together(whole, all_fields(lots.guarantee))


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def made(request, tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Made(Case(*CASES[request.param], tmp_path_factory.mktemp("surfaces")))


def unsafe(text: str, values: Values) -> list[tuple[str, float]]:
    """Figures of a text that are on the unsafe side of what they stand for, or stand for nothing known."""
    return [(kind, printed) for kind, printed in figures(text) if not is_safe(kind, printed, values.get(kind, ()))]


def unprinted(text: str, values: Values) -> list[tuple[str, float]]:
    """Values that no figure of a text stands for."""
    found = figures(text)
    return [
        (kind, value)
        for kind, every in values.items()
        for value in every
        if not any(kind == other and is_safe(kind, printed, (value,)) for other, printed in found)
    ]


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning", "ignore::croupier.estimator.BudgetWarning")
@pytest.mark.parametrize("name", SURFACES)
def test_no_surface_prints_a_figure_on_its_unsafe_side(made, name):
    text, values = SURFACES[name](made)
    assert not unsafe(text, values), text
    assert not unprinted(text, values), text


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("if at least 1 % of all users add noise", {"honest": (0.0149,)}),
        ("at least 1% of all users", {"honest": (0.0149,)}),
        ("honest fraction 0.333333", {"honest": (0.33333333,)}),
        ("epsilon = 1.23456, delta = 1e-6", {"epsilon": (1.23456123,), "delta": (1e-6,)}),
        ("(1.234, 1e-06)-differentially private", {"epsilon": (1.2341, 1.2339), "delta": (1e-6,)}),
        ("a probability of 1.234e-07 (delta), 1 in 8,103,728", {"delta": (1.23456e-7,), "one in": (1.23456e-7,)}),
        ("is right at most 55.2 % of the time", {"guess": (0.55204,)}),
        ("by a factor of at most 2.71", {"factor": (math.e,)}),
        ("mu >= 0.12346", {"least mu": (0.123456,)}),
        ("less than 6.02192e-05", {"less than": (1 / USERS,)}),
        ("at least 247 of 16,606 users", {"users": (248, USERS)}),
        ("of 16,600 users", {"users": (USERS,)}),
    ],
)
def test_an_unsafe_figure_is_noticed(text, values):
    assert unsafe(text, values)


# --- nobody formats such a figure but privacy/_statements.py --------------------------------------------------------------

# Names of privacy figures, alone or as a part of a longer name.
PRIVATE = re.compile(r"(?:^|_)(?:epsilon|delta|mu|slack|honest|guess|spent|revealed)(?:_|$)")
ROUNDED = {"round_up", "round_down", "percent_up", "factor_up", "one_in", "exact", "loss", "crowd", "honest_users"}
# A number of users is whole: printed as it is, with commas between thousands.
WHOLE = re.compile(r",?d?")


def names_in(node: ast.AST) -> set[str]:
    """Names in an expression, but for those inside a call that rounds to the safe side."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ROUNDED:
        return set()
    own = {node.id} if isinstance(node, ast.Name) else {node.attr} if isinstance(node, ast.Attribute) else set()
    return own.union(*map(names_in, ast.iter_child_nodes(node)))


def formatted_by_themselves(source: str) -> list[int]:
    """Lines that turn a privacy figure into text, or round it, by a rule of their own."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spec = "".join(str(part.value) for part in node.format_spec.values if isinstance(part, ast.Constant))
            value = None if WHOLE.fullmatch(spec) and "honest" not in names_in(node.value) else node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("round", "format"):
            value = ast.Tuple(elts=node.args, ctx=ast.Load())
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
            value = node.right if isinstance(node.left.value, str) else None
        else:
            continue
        if value is not None and any(PRIVATE.search(name) for name in names_in(value)):
            lines.append(node.lineno)
    return lines


def test_no_module_formats_a_privacy_figure_by_itself():
    modules = list(SOURCE.rglob("*.py"))
    assert len(modules) > 100
    found = {str(path.relative_to(SOURCE)): lines for path in modules if (lines := formatted_by_themselves(path.read_text()))}
    assert not found, "use croupier.privacy._statements"


@pytest.mark.parametrize(
    "line",
    [
        'f"{model.epsilon:g}"',
        'f"{100 * plan.honest:.4g} %"',
        'f"{made.honest:.0%}"',
        'f"{float(guarantee.delta(0.0)):.3f}"',
        "round(plan.mu, 3)",
        '"%g" % max_delta',
        '"{:g}".format(epsilon)',
        'format(epsilon, ".3g")',
    ],
)
def test_a_module_that_formats_by_itself_is_noticed(line):
    assert formatted_by_themselves(line)
    assert not formatted_by_themselves('f"{round_up(epsilon):>8} {plan.honest_users:,} {plan.noise_std:.4g}"')


def test_the_dashboards_script_prints_texts_of_the_promise_as_they_are():
    script = (SOURCE / "service" / "analyzer" / "dashboard.html").read_text()
    for line in script.splitlines():
        if re.search(r"\b(?:privacy|promise)[.[]", line):
            assert not re.search(r"toFixed|toPrecision|Math\.|Number\(|parseFloat", line), line
