"""`SumPlan.prove`: a plan's guarantee as enclosures by ball arithmetic, and the certificate that a reader checks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from flint import arb, ctx

from ..validation import ArgumentError
from . import ball
from .certificate import SHIFT_MARGIN, Certificate, NoCertificateError
from .plan import SumPlan
from .tight import THEOREM, certificate_of

VERSION = 1
_DIGITS = 20
# The margin of `certify` for the encoder's rounding, as a decimal number.
SHIFT_FACTOR = 1 + Fraction(repr(SHIFT_MARGIN))


@dataclass(frozen=True)
class Enclosure:
    """Two decimal numbers with a real number between them: `lower` was rounded down, `upper` up.

    Parameters
    ----------
    lower, upper : decimal.Decimal
        The ends, in 20 significant digits.

    Examples
    --------
    >>> print(Enclosure(Decimal("0.21"), Decimal("0.22")))
    [0.21, 0.22]
    """

    lower: Decimal
    upper: Decimal

    @classmethod
    def of(cls, number: arb) -> Enclosure:
        """Read the ends of a ball, rounded outward.

        Parameters
        ----------
        number : arb
            A ball.

        Returns
        -------
        Enclosure
            In decimal numbers.

        Raises
        ------
        NoCertificateError
            Where the ball is not finite.
        """
        if not number.is_finite():
            raise NoCertificateError(f"a figure could not be enclosed: {number}")
        with ctx.workprec(ball.PRECISION):
            return cls(_decimal(number.lower(), ROUND_FLOOR), _decimal(number.upper(), ROUND_CEILING))

    def rounded(self, digits: int) -> Enclosure:
        """Round the ends outward again.

        Parameters
        ----------
        digits : int
            Significant digits.

        Returns
        -------
        Enclosure
            A wider one that holds this one.
        """
        lower, upper = (Context(prec=digits, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))
        return Enclosure(lower.plus(self.lower), upper.plus(self.upper))

    def __str__(self) -> str:
        return f"[{self.lower}, {self.upper}]"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What ball arithmetic proves of a plan: a certificate that holds for the real numbers, not up to floating-point errors.

    Parameters
    ----------
    plan : SumPlan
        The plan that was proved.
    low, high : int
        The window of Theorem B that the figures hold for.
    shift : fractions.Fraction
        S of Theorem B with the encoder's margin of 1e-9.
    step : Enclosure or None
        c; None where the window was bounded in blocks, and mu is ct S.
    slope : Enclosure
        ct.
    bulge : Enclosure or None
        kappa; None where the window was bounded in blocks.
    tau, mu : Enclosure
        tau and mu of one round.
    delta : Enclosure
        deltaG(epsilon; sqrt(rounds) mu) + rounds dim tau: what is lost at the plan's epsilon over all its rounds.

    Guarantee
    ---------
    One user's loss over all rounds of the plan is at most (epsilon, `delta.upper`), by accounting Theorem B and section 4.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> proof = prove(plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2))
    >>> proof.delta.lower <= proof.delta.upper <= Decimal("1e-6")
    True
    """

    plan: SumPlan
    low: int
    high: int
    shift: Fraction
    step: Enclosure | None
    slope: Enclosure
    bulge: Enclosure | None
    tau: Enclosure
    mu: Enclosure
    delta: Enclosure

    def enclosures(self) -> dict[str, Enclosure]:
        """Give the enclosures there are.

        Returns
        -------
        dict of str to Enclosure
            By name: step, slope, bulge, tau, mu, delta.
        """
        figures = {name: getattr(self, name) for name in ("step", "slope", "bulge", "tau", "mu", "delta")}
        return {name: figure for name, figure in figures.items() if figure is not None}

    def to_dict(self) -> dict[str, Any]:
        """Give the certificate: what was proved of which noise (docs/certificates.md).

        Returns
        -------
        dict
            In plain JSON types, numbers as exact or outward rounded decimals.
        """
        plan = self.plan
        return {
            "certificate": "croupier accounting Theorem B",
            "version": VERSION,
            "plan": {
                name: getattr(plan, name)
                for name in ("users", "honest_users", "dim", "rounds", "neighbours", "levels", "noise_bits", "noise_probability")
            },
            "trials": plan.noise_bits * plan.honest_users,
            "probability": str(Fraction(plan.noise_probability)),
            "shift": str(self.shift),
            "reach": plan.encoded_reach(plan.levels),
            "dim": plan.dim,
            "rounds": plan.rounds,
            "epsilon": str(Fraction(plan.epsilon)),
            "low": self.low,
            "high": self.high,
            "bounds": {name: [str(figure.lower), str(figure.upper)] for name, figure in self.enclosures().items()},
        }

    def to_json(self) -> str:
        """Write the certificate as JSON.

        Returns
        -------
        str
            Indented, for people to read, too.
        """
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        lines = [f"{name} in {figure}" for name, figure in self.enclosures().items()]
        return f"window {self.low}..{self.high}: " + ", ".join(lines)


def prove(plan: SumPlan) -> Proof:
    """Prove a plan in ball arithmetic: see `SumPlan.prove`.

    Parameters
    ----------
    plan : SumPlan
        A plan with the tight calibration.

    Returns
    -------
    Proof
        Its enclosures.

    Raises
    ------
    ArgumentError
        For the paper's calibrations, which do not rest on Theorem B.
    NoCertificateError
        Where a figure of the plan is not above its enclosure, or cannot be enclosed.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> float(prove(plan).tau.upper) * plan.dim <= plan.slack
    True
    """
    if plan.calibration != "tight":
        raise ArgumentError(
            "calibration",
            plan.calibration,
            "'tight' for a proof in ball arithmetic",
            "The paper's calibrations do not rest on Theorem B; their guarantee is a formula of the paper.",
        )
    fast = certificate_of(plan, plan.levels, plan.noise_bits, plan.noise_probability)
    shift = Fraction(plan.encoded_shift(plan.levels)) * SHIFT_FACTOR
    constants = ball.constants(
        plan.noise_bits * plan.honest_users,
        plan.noise_probability,
        shift=shift,
        reach=plan.encoded_reach(plan.levels),
        dim=plan.dim,
        low=fast.low,
        high=fast.high,
    )
    with ctx.workprec(ball.PRECISION):
        whole_mu = constants.mu * arb(plan.rounds).sqrt()
        slack = constants.tau * plan.dim * plan.rounds
        delta = ball.gaussian_delta_ball(Fraction(plan.epsilon), whole_mu) + slack
        _below_claims(plan, fast, constants, {"mu": whole_mu, "slack": slack, "certified_delta": delta})
        step, bulge = (None if constant is None else Enclosure.of(constant) for constant in (constants.step, constants.bulge))
        return Proof(
            plan=plan,
            low=fast.low,
            high=fast.high,
            shift=shift,
            step=step,
            slope=Enclosure.of(constants.slope),
            bulge=bulge,
            tau=Enclosure.of(constants.tau),
            mu=Enclosure.of(constants.mu),
            delta=Enclosure.of(delta),
        )


def _below_claims(plan: SumPlan, fast: Certificate, constants: ball.Constants, whole: dict[str, arb]) -> None:
    """Refuse where a figure that the plan promises, or its certificate rests on, is not proved."""
    claims = [(name, getattr(plan, name), figure) for name, figure in whole.items()]
    claims += [("mu of one round", fast.mu, constants.mu), ("tau", fast.tau, constants.tau)]
    for name, claimed, figure in claims:
        if not figure <= arb(claimed):
            raise NoCertificateError(
                f"{name} = {claimed} of this plan is not proved: ball arithmetic gives {Enclosure.of(figure)} by {THEOREM}. "
                "Do not use the plan; ask for the output of plan_sum."
            )


def _decimal(end: arb, rounding: str) -> Decimal:
    """An exact binary number in _DIGITS decimal digits."""
    mantissa, exponent = (int(part) for part in end.man_exp())
    top, bottom = (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)
    context = Context(prec=_DIGITS, rounding=rounding, Emin=-(10**6), Emax=10**6)
    return context.divide(Decimal(top), Decimal(bottom))
