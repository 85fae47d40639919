"""The promise in words, written once: explain, show, the report, the dashboard and the commands all print these sentences.

A `Claim` is one pair (epsilon, delta) with what follows from it; `PromiseWords` is a claim with the neighbours and the crowd that
it is made for.

Privacy figures become text here and nowhere else in the package, rounded to the safe side. Losses (epsilon, delta, mu, slack, what
an attacker can guess) are rounded up. So are assumptions (the honest fraction): to assume more than the proof needs is safe, to
print less than it needs is not. What an audit found to be at least so large is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guarantee import Guarantee

# Below this, floats have fewer digits than we print; a loss that is smaller is printed as this.
_SMALLEST = 1e-300
_DIGITS_OF_EXP = 40


def round_up(value: float, digits: int = 4) -> str:
    """A loss as text, never smaller than it is."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(max(value, _SMALLEST) if value > 0 else value)), digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """A lower bound as text, never larger than it is: what an audit has shown, or a limit that must not be passed."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value:g}"
    return _rounded(Decimal(repr(0.0 if 0 < value < _SMALLEST else value)), digits, ROUND_FLOOR)


def loss(value: Any) -> str:
    """`round_up` of a number; what is not a number, as it is, for texts about parameters that nobody has checked yet."""
    number = _number(value)
    return repr(value) if number is None else round_up(number)


def exact(value: float) -> str:
    """A number that a person chose, in as many digits as it takes."""
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


def percent_up(share: Any, digits: int = 4) -> str:
    """A share as a percentage, never smaller than it is: an honest fraction that a proof needs, or the chance of a right guess."""
    number = _number(share)
    if number is None or not math.isfinite(number):
        return repr(share)
    exactly = 100 * Decimal(repr(max(number, _SMALLEST)))
    return f"{_rounded(min(exactly, Decimal(100)), digits, ROUND_CEILING)} %"


def factor_up(epsilon: float, digits: int = 3) -> str:
    """e^epsilon as text, never smaller than it is."""
    precise = Context(prec=_DIGITS_OF_EXP)
    exponential = precise.exp(Decimal(repr(float(epsilon))))  # to nearest, so that the next number is above e^epsilon
    if epsilon != 0:
        exponential = precise.next_plus(exponential)
    factor = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(exponential)
    return f"{factor:,f}" if factor < 10**6 and factor == factor.to_integral_value() else _rounded(factor, digits, ROUND_CEILING)


def one_in(delta: float) -> str:
    """A probability as "1 in so many", never smaller than it is, and no smaller than `round_up` prints it."""
    return f"1 in {int((1 / Decimal(round_up(delta))).to_integral_value(ROUND_FLOOR)):,}"


def _rounded(value: Decimal, digits: int, way: str) -> str:
    return f"{float(Context(prec=digits, rounding=way).create_decimal(value)):.{digits}g}"


def _number(value: Any) -> float | None:
    """The value of a number, of numpy's too; None for anything else."""
    try:
        return None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


# Deltas at which a guarantee that was planned for none in particular says its epsilon: the first that its slack leaves room in.
USUAL_DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# Randomized responses beyond which epsilons are added up for a headline, since optimal composition would take long.
_MANY_RESPONSES = 1000
# Of the smallest errors of a float computation, with room to spare.
_ROUND_UP = 1 + 1e-12

SCALE = "1 is a strong promise, 4 a moderate one"
IN_GENERAL = "The model does say things about people in general, perhaps also about that person."
SHUFFLER = (
    "It enrols only real people, each of them once. It mixes the messages of a round before the analyzer sees them, withholds a "
    "round with fewer people than planned, and does not reveal who sent what. A shuffler that colludes with the analyzer, or "
    "invents the other people itself, leaves each person with their own few noise bits, which gives little protection."
)
MACHINES = (
    "The machines that hold the data are trusted: in a fit they hold everybody's data, in a deployed task each device holds "
    "its owner's. The promise covers what leaves them, not what an attacker inside them could see."
)
RECORDS = {
    "refuse": "Assumptions about the records: if others can see a refusal, all records are valid (finite numbers, declared "
    'labels). A fit stops at an invalid record, which reveals that there is one. The option invalid, set to "blank", needs no such '
    "assumption.",
    "blank": "Assumptions about the records: none. An invalid record counts as a blank, which is the same whatever it contains.",
}
LOTS = (
    "Each person's round is drawn by lot and kept from everybody who sees the rounds' sums. Rounds are filled up with "
    "blanks, noisy answers that carry no data, so that the number of people in a round stays hidden. The lots, and the secret they "
    "are drawn from, stay where the data is."
)
DEPLOYED_LOTS = (
    "The shuffler draws the lots, tells each person only their own, and fills rounds up with blanks that it makes. "
    "A round ends at a time fixed beforehand, regardless of who came."
)
COUNTED_BLANKS = (
    "An enroller counts the blanks: at least {people} of the {size} reports of a round come from people it invited, or the task "
    "ends. Both figures assume that this many people come to every round, whatever their lots."
)
PUBLIC = "Treated as public: the parameters, the number of people, and the names and number of columns."
ONCE = "Fitting again on the same people, or publishing scores on them, spends more than this."
SEEDED = "the randomness was seeded"
STAND_IN = "a stand-in with seeded noise answered for users"
SEEDED_OR_STAND_IN = "seeded randomness, or a stand-in for users"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One pair of figures, and what an attacker can do who sees the release.

    `epsilon`, `delta`: The privacy loss, and the probability of a larger one. `guess`: The largest probability of guessing right
    between two records that are equally likely beforehand.
    """

    epsilon: float
    delta: float
    guess: float

    @classmethod
    def of(cls, epsilon: float, delta: float, guarantee: Guarantee | None = None) -> Claim:
        """The claim (epsilon, delta); its guess is that of the guarantee behind it, where there is one."""
        if guarantee is not None:
            guess = (1 + guarantee.delta(0.0)) / 2
        else:
            guess = 1 / (1 + math.exp(-epsilon)) + delta / (1 + math.exp(min(epsilon, 700.0)))
        return cls(epsilon=epsilon, delta=delta, guess=min(1.0, guess * _ROUND_UP))

    @property
    def factor(self) -> str:
        """e^epsilon, rounded up."""
        return factor_up(self.epsilon)

    @property
    def best_guess(self) -> str:
        """The guess as a percentage, rounded up."""
        return percent_up(self.guess, 3)


@dataclass(frozen=True, kw_only=True)
class PromiseWords:
    """What is promised to every single person, in sentences.

    `claim`: The figures, against anyone who sees the model and everything that the analyzer saw. `neighbours`: "replace-one" or
    "zero-out". `honest`: The fraction of all people relied on to add noise. `kept`: False where the randomness was seeded: the
    sentences then say what secure randomness would have promised. `watched`: Where lots are secret, what `watched_line` says; else
    empty. `release`: "model", or "answer" where a question is asked.
    """

    claim: Claim
    neighbours: str
    honest: float
    kept: bool = True
    watched: str = ""
    release: str = "model"

    @property
    def headline(self) -> str:
        """Epsilon and delta, and to whom."""
        promises = "It promises" if self.kept else "With secure randomness it would promise"
        return (
            f"{promises} epsilon = {round_up(self.claim.epsilon)} and delta = {round_up(self.claim.delta)} to every single person."
        )

    @property
    def if_watched(self) -> str:
        """Where lots are secret, what holds to whom; else empty."""
        if not self.watched:
            return ""
        holds = "holds" if self.kept else "would hold"
        return (
            f"That {holds} with secret lots: to anyone who does not know in which round a person was asked. To an attacker who "
            f"also knows when each person answered, even from the shuffler, it is {self.watched}."
        )

    @property
    def difference(self) -> str:
        """The promise for a reader who wants no figures."""
        size = "little" if self.claim.guess < 0.65 else "a limited"
        makes = f"makes {size} difference" if self.kept else f"would make {size} difference, with secure randomness,"
        return (
            f"Changing your record {makes} to what anyone can see of this {self.release}, or of everything that the analyzer "
            f"saw while it was made."
        )

    @property
    def meaning(self) -> str:
        """What epsilon and delta say of conclusions."""
        return (
            f"Exchanging one person's data for {_other(self.neighbours)} changes the probability of any conclusion from the "
            f"{self.release}, or from everything that the analyzer saw while it was made, by a factor of at most "
            f"{self.claim.factor} (e^epsilon), except with probability {round_up(self.claim.delta)} (delta), "
            f"{one_in(self.claim.delta)}."
        )

    @property
    def guess(self) -> str:
        """What an attacker can guess who knows all the others."""
        replaced = self.neighbours == "replace-one"
        records = "which of two equally likely records was a person's"
        question = records if replaced else "whether a person's record was used, which is as likely as not,"
        return (
            f"An attacker who knows everybody else's data and guesses {question} is right at most {self.claim.best_guess} of the "
            f"time. A coin toss is right 50 % of the time."
        )

    @property
    def crowd(self) -> str:
        """The honest people that are counted on."""
        everyone, lies = crowd(self.honest), f"Lies about their data harm the {self.release}, but nobody's privacy."
        return f"{everyone[0].upper()}{everyone[1:]} add the noise that they should. {lies}"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 round, 1,000 rounds."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def crowd(honest: Any, who: str = "people") -> str:
    """The honest part of everybody that a proof needs, never said to be smaller than it is."""
    share = percent_up(honest)
    return f"all {who}" if share == "100 %" else f"at least {share} of all {who}"


def honest_users(needed: int, users: int, who: str = "users") -> str:
    """How many honest users a round needs, of how many."""
    return f"all {users:,} {who}" if needed >= users else f"at least {needed:,} of {users:,} {who}"


def of_records(invalid: str | None) -> str:
    """`RECORDS` under a heading that says already what it is about."""
    said = RECORDS.get(invalid or "refuse", RECORDS["refuse"]).partition(": ")[2]
    return said[0].upper() + said[1:]


def brief(epsilon: Any, delta: Any, neighbours: str) -> str:
    """A promise in a few words; parameters that nobody has checked yet are printed as they are."""
    return f"epsilon = {loss(epsilon)}, delta = {loss(delta)}, neighbours {neighbours}"


def guarantee_line(guarantee: Guarantee, epsilon: float, delta: float) -> str:
    """What was asked for, in one line: (epsilon, delta) first, then for whom, if what, and by which theorem.

    The delta is the one asked for, as everywhere else, if the guarantee keeps it; otherwise the larger one that it keeps.
    """
    return _line(guarantee, round_up(epsilon), round_up(max(delta, guarantee.delta(epsilon))))


def certified_line(guarantee: Guarantee, epsilon: float | None = None, delta: float | None = None) -> str:
    """`guarantee_line` with the figures that the proof is made of.

    Without an epsilon: the smallest one at this delta, or else at the first usual delta that the slack leaves room in.
    """
    secret = [f"mu = {round_up(one.mu)} in one of {one.rounds:,} secret rounds" for one in guarantee.allocations]
    figures = [f"mu = {round_up(guarantee.mu)}"] if guarantee.mu or not (guarantee.pure_rounds or secret) else []
    figures += secret
    if guarantee.pure_rounds:
        figures.append(f"{guarantee.pure_rounds} x epsilon = {round_up(guarantee.pure_epsilon)}")
    figures.append(f"slack = {round_up(guarantee.slack)}")
    if epsilon is not None:
        line = guarantee_line(guarantee, epsilon, delta or 0.0)
    elif (usual := _usual(guarantee, delta)) is None:
        line = f"no promise at any delta of use, {_conditions(guarantee)}"
    else:
        line = _line(guarantee, *map(round_up, usual))
        if guarantee.watched is not None:
            figures.append(f"and to an attacker who also knows when each user answered {watched_line(guarantee, usual[1])}")
    return f"{line} ({', '.join(figures)})"


def watched_line(guarantee: Guarantee, delta: float) -> str:
    """What is left of a promise to an attacker who also knows when each user answered."""
    watched, epsilon = guarantee.if_watched, watched_epsilon(guarantee, delta)
    if epsilon is None:
        return f"no promise at delta {round_up(delta)}"
    come = (
        f", if {crowd(watched.honest, 'users')} come to their round and add their noise"
        if watched.honest < guarantee.honest
        else ""
    )
    return f"epsilon {epsilon} at delta {round_up(delta)}{come}"


def watched_epsilon(guarantee: Guarantee, delta: float) -> str | None:
    """The figure of `watched_line` alone, rounded up; None if nothing is promised at this delta."""
    watched = guarantee.if_watched
    return None if watched.slack >= delta else round_up(watched.epsilon(delta))


def watched_demand(guarantee: Guarantee, delta: float, usual: float = math.inf) -> str:
    """What clients of a deployed task have to accept, where nothing is promised if watched, or more than the `usual` epsilon.

    They look at the delta that they allow: the usual one, or a larger one where the task's is.
    """
    delta = max(delta, USUAL_DELTAS[0])
    epsilon = watched_epsilon(guarantee, delta)
    if epsilon is not None and guarantee.if_watched.epsilon(delta) <= usual:
        return ""
    return f"; clients join only with --max-epsilon-if-watched {'inf' if epsilon is None else epsilon}"


def not_private(why: str) -> str:
    """Why a result promises nothing."""
    return f"NOT PRIVATE: {why}. Anyone who knows the seed can remove the noise."


def not_covered(names: Sequence[str]) -> str:
    """What was taken from the data."""
    return f"NOT COVERED: {', '.join(names)}, taken from the data, because it was declared public."


def _usual(guarantee: Guarantee, wanted: float | None = None) -> tuple[float, float] | None:
    """An epsilon and the delta that `certified_line` states it at; None if the slack leaves no such delta."""
    deltas = USUAL_DELTAS if wanted is None else (wanted, *USUAL_DELTAS)
    delta = next((usual for usual in deltas if usual >= 2 * guarantee.slack), None)
    if delta is None:
        return None
    if guarantee.pure_rounds <= _MANY_RESPONSES:
        return guarantee.epsilon(delta), delta
    rest = replace(guarantee, pure_epsilon=0.0, pure_rounds=0)
    return (rest.epsilon(delta) + guarantee.pure_rounds * guarantee.pure_epsilon) * _ROUND_UP, delta


def _line(guarantee: Guarantee, epsilon: str, delta: str) -> str:
    return f"({epsilon}, {delta})-differentially private {_conditions(guarantee)}"


def _conditions(guarantee: Guarantee) -> str:
    return (
        f"for {guarantee.neighbours} neighbours, if {crowd(guarantee.honest, 'users')} follow the protocol; by {guarantee.theorem}"
    )


def _other(neighbours: str) -> str:
    return "any other data" if neighbours == "replace-one" else "having sent nothing but noise"
