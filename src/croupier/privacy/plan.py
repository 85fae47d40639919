"""The plan of a private sum: what every user adds, what it costs, and what it guarantees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr

from ..files import JsonText
from ..validation import ArgumentError, how_to_install, one_of, real, whole
from ._statements import certified_line, round_up
from .gaussian import central_noise_std
from .guarantee import NEIGHBOURS, Guarantee, known_fields

if TYPE_CHECKING:
    from ._proof import Proof

Calibration = Literal["tight", "paper", "paper-scaled"]
CALIBRATIONS: tuple[str, ...] = get_args(Calibration)
# Coordinates up to which clipping moves no two vectors apart by more than the margin of S covers (accounting, section 6).
MOST_COORDINATES = 10**6
MAX_RANGE = 1e6  # of a rotated coordinate, in norms


def padded_length(dim: int) -> int:
    """The power of two that is at least `dim`: the coordinates of a rotated vector."""
    return 1 << (dim - 1).bit_length()


def rounding_variance(share: float) -> float:
    """The mean over rotated coordinates of r (1 - r) for an even number of levels, at most; `share` is 1 / (h sqrt(d')).

    As a function of z^2 / h^2 = u it is at most sqrt(u) - u up to u = 1/4, and 1/4 beyond, which is concave: Jensen.
    """
    return share * (1 - share) if share < 0.5 else 0.25


def default_delta(users: int) -> float:
    """Return the delta that a request without one has: 1e-6, or 0.1 / users if that is less.

    At 1 / users a person's record might be published.

    Examples
    --------
    >>> default_delta(20_000), default_delta(1_000_000)
    (1e-06, 1e-07)
    """
    users = whole("users", users, at_least=1, remedy="Count the people who are asked.")
    return min(1e-6, 1 / (10 * users))


@dataclass(frozen=True, kw_only=True)
class SumRequest:
    """What was asked for: the public facts of a private sum, checked. `plan_sum` explains each and gives its range.

    `epsilon`, `delta`: The guarantee, for a user who takes part in all rounds. `users`, `dim`: Users in one round, and coordinates
    of a user's vector. `norm`, `honest`: Public bound on a vector's l2 norm, in units of the data; fraction of the users that is
    trusted to add its noise. `rounds`: Rounds that each user takes part in. `neighbours`, `calibration`: By default "replace-one"
    and "tight". `max_inflation`: Noise allowed relative to a trusted curator's. `max_bits`: Bits per coordinate that one user may
    send. `scalar`: Whether it is the sum of numbers in an interval (Algorithm 1). `diameter`: Bound on the l2 distance of any two
    vectors that users may send; default: twice the norm. `range`: With a rotation, R: coordinates are clipped to +- R times the
    norm. None if vectors are encoded as they are. `blocks`: With a rotation, the blocks that the rotated vector is cut into, a
    power of two; a user sends one of them. `answers`: The query's claim that a vector has at most this many entries other than 0,
    all of size norm / sqrt(answers). Accuracy alone rests on it.
    """

    epsilon: float
    delta: float
    users: int
    dim: int
    norm: float = 1.0
    honest: float = 1.0
    rounds: int = 1
    neighbours: str = "replace-one"
    calibration: str = "tight"
    max_inflation: float = 1.05
    max_bits: int | None = None
    scalar: bool = False
    diameter: float | None = None
    range: float | None = None
    blocks: int = 1
    answers: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "epsilon": real("epsilon", self.epsilon, above=0, remedy="Choose the privacy loss you promise; 1 is a common value."),
            "delta": real("delta", self.delta, above=0, below=1, remedy="Choose it well below 1 / users; 1e-6 is a common value."),
            "users": whole("users", self.users, at_least=1, at_most=10**12, remedy="State the number of users in one round."),
            "dim": whole("dim", self.dim, at_least=1, at_most=10**9, remedy="State the number of coordinates of a user's vector."),
            "norm": real(
                "norm",
                self.norm,
                above=1e-100,
                below=1e100,
                remedy="Give a public bound on the l2 norm of a user's vector; longer ones are clipped to it.",
            ),
            "honest": real(
                "honest",
                self.honest,
                above=0,
                at_most=1,
                remedy="Give the fraction of users that you trust to add their noise; 1 is all of them.",
            ),
            "rounds": whole(
                "rounds", self.rounds, at_least=1, at_most=10**9, remedy="State the rounds that each user takes part in."
            ),
            "neighbours": one_of("neighbours", self.neighbours, NEIGHBOURS, "The paper's is 'replace-one'."),
            "calibration": one_of("calibration", self.calibration, CALIBRATIONS, "'tight' adds the least noise."),
            "max_inflation": real(
                "max_inflation",
                self.max_inflation,
                above=1,
                remedy="It is the noise allowed relative to a trusted curator's; 1.05 is 5 per cent more.",
            ),
        }
        if self.max_bits is not None:
            remedy = "Every coordinate needs at least one bit of data and one of noise."
            checked["max_bits"] = whole("max_bits", self.max_bits, at_least=2, at_most=2**31, remedy=remedy)
        if self.diameter is not None:
            checked["diameter"] = self._checked_diameter(checked["norm"], checked["dim"])
        if not isinstance(self.scalar, bool) or (self.scalar and self.dim != 1):
            raise ArgumentError(
                "scalar", self.scalar, "true only for dim = 1", "Use plan_scalar_sum for numbers, plan_sum for vectors."
            )
        checked |= self._checked_rotation(checked["dim"])
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _checked_rotation(self, dim: int) -> dict[str, Any]:
        """The fields of a rotation."""
        checked: dict[str, Any] = {}
        if self.answers is not None:
            remedy = "Count the entries of a vector that are not 0, or leave it out."
            checked["answers"] = whole("answers", self.answers, at_least=1, at_most=dim, remedy=remedy)
        blocks = whole("blocks", self.blocks, at_least=1, remedy="A user sends one of this many blocks; 1 is the whole vector.")
        if self.range is not None:
            remedy = "Use the plan as plan_sum made it."
            checked["range"] = real("range", self.range, above=0, at_most=MAX_RANGE, remedy=remedy)
            if self.scalar or self.calibration != "tight" or dim > MOST_COORDINATES:
                allowed = f"left out except for vectors of at most {MOST_COORDINATES} coordinates, with tight calibration"
                raise ArgumentError("range", self.range, allowed, remedy)
        most = 1 if self.range is None else padded_length(dim)
        if blocks & (blocks - 1) or blocks > most:
            raise ArgumentError("blocks", blocks, f"a power of two, from 1 to {most}", "Blocks need a rotation; see plan_lots.")
        if blocks > 1 and self.diameter is not None:  # vectors that are near each other may differ in one block alone
            raise ArgumentError(
                "diameter", self.diameter, "left out with blocks", "Leave it out: blocks are clipped to their norm."
            )
        return checked | {"blocks": blocks}

    def _checked_diameter(self, norm: float, dim: int) -> float:
        remedy = (
            "Give a proved bound on the distance of any two vectors, zero among them, or leave it out: twice the norm always holds."
        )
        if self.calibration != "tight":
            raise ArgumentError("diameter", self.diameter, "left out in the paper's calibration", "Use the tight calibration.")
        if dim > MOST_COORDINATES:
            allowed = f"left out for more than {MOST_COORDINATES} coordinates, where lengths are not computed well enough for it"
            raise ArgumentError("diameter", self.diameter, allowed, "Leave it out, or send fewer coordinates.")
        return real("diameter", self.diameter, at_least=norm, at_most=2 * norm, remedy=remedy)

    @property
    def honest_users(self) -> int:
        """Honest users that the guarantee counts on: ceil(honest * users), and the smallest batch the shuffler releases."""
        return min(self.users, max(1, math.ceil(self.honest * self.users * (1 - 1e-15))))

    @property
    def padded(self) -> int:
        """Coordinates of the rotated vector, d': the power of two that is at least `dim`; `dim` where there is no rotation."""
        return self.dim if self.range is None else padded_length(self.dim)

    @property
    def coordinates(self) -> int:
        """Coordinates that one user sends: all of them, or those of one block."""
        return self.padded // self.blocks

    @property
    def block_norm(self) -> float:
        """rho: what the part that a user sends is clipped to, in norms: (1 + 1/sqrt(k)) / sqrt(blocks), k the coordinates."""
        return 1.0 if self.blocks == 1 else (1 + 1 / math.sqrt(self.coordinates)) / math.sqrt(self.blocks)

    @property
    def bias_bound(self) -> float:
        """What clipping coordinates to the range moves any coordinate of the sum by, at most, in root mean square over rotations.

        In units of the data, for users whose vectors are as long as the norm and all alike; 0 where nothing is ever clipped. With
        blocks, of `blocks` times the sum of their estimates. Plans with blocks, or with a diameter, whose sums are read in
        combinations of coordinates, have the bound for combinations whose weights have l2 norm 1. It is part of no error bar
        (accounting, section 10).
        """
        one_by_one = self.blocks == 1 and self.diameter is None
        return self._bias(coordinate_bias if one_by_one else vector_bias)

    @property
    def bias_rms(self) -> float:
        """The same in root mean square over coordinates, too."""
        return self._bias(vector_bias) / math.sqrt(self.dim)

    def _bias(self, of_one: Callable[[float, int], float]) -> float:
        if self.range is None or (self.answers is not None and self._box**2 >= self.answers * (1 - 1e-9)):
            return 0.0
        return self.blocks * self.users * self.norm * of_one(self._box, self.padded)

    @property
    def _box(self) -> float:
        """t: the range in root mean squares of the coordinates of a vector as long as the norm."""
        return (self.range or 0.0) * math.sqrt(self.padded)

    @property
    def sensitivity(self) -> float:
        """l2 distance that one user can move the true sum by."""
        if self.neighbours != "replace-one":
            return self.norm
        return 2 * self.norm if self.diameter is None else self.diameter

    @property
    def central_noise_std(self) -> float:
        """Noise of a trusted curator (analytic Gaussian mechanism) per coordinate and round at the same guarantee.

        With blocks, of `blocks` times what they say together.
        """
        return central_noise_std(self.epsilon, self.delta, self.sensitivity * self.block_norm * self.blocks, self.rounds)

    def encoded_shift(self, levels: int) -> float:
        """l2 distance of neighbouring encodings (S of Theorem B): g D / (2 Delta), or g/2 where one of them is the zero vector.

        A rotation divides it by the range, and blocks multiply it by `block_norm`.

        Parameters
        ----------
        levels : int
            g.

        Returns
        -------
        float
            The distance in levels.
        """
        if self.range is not None:
            return self.sensitivity / self.norm * self.block_norm * (levels / (2 * self.range))
        if self.neighbours != "replace-one":
            return levels / 2
        return float(levels) if self.diameter is None else levels * (self.diameter / (2 * self.norm))

    def encoded_reach(self, levels: int) -> int:
        """Distance of neighbouring encodings in one coordinate (K of Theorem B).

        Parameters
        ----------
        levels : int
            g.

        Returns
        -------
        int
            The distance in levels, rounded up.
        """
        if self.neighbours != "replace-one":
            return (levels + 1) // 2
        # no coordinate moves further than the whole vector does; the part in a million covers what the vector is off by
        return min(levels, math.ceil(self.encoded_shift(levels) * (1 + 1e-6)))

    def noise_std_with(self, levels: int, noise_bits: int, probability: float, users: int) -> float:
        """Standard deviation per coordinate of the estimated sum of `users` vectors, at its largest over all inputs.

        Random rounding gives at most 1/4 per user, the noise bits b p (1 - p), in units of one level (accounting, 5). With a
        rotation rounding gives less to single coordinates (accounting, 10); plans with a diameter keep 1/4, since what is read
        from their sums are combinations of coordinates, unless nothing is rounded (one answer). With blocks it is that of
        `blocks` times the sum of all blocks' estimates, each from this many users.

        Parameters
        ----------
        levels, noise_bits, probability, users : int, float
            g, b, p, and the users that arrived.

        Returns
        -------
        float
            In units of the data.
        """
        variance = users * self._rounding(levels) + users * noise_bits * probability * (1 - probability)
        if self.range is None:
            return 2 * self.norm / levels * math.sqrt(variance)
        return self.step(levels) * self.blocks * math.sqrt(variance)

    def step(self, levels: int) -> float:
        """h: what one level is in units of the data.

        Parameters
        ----------
        levels : int
            g.

        Returns
        -------
        float
            2 norm range / g.
        """
        return 2 * self.norm * (1.0 if self.range is None else self.range) / levels

    def _rounding(self, levels: int) -> float:
        """The variance of random rounding per user, in levels: at most 1/4."""
        if self.range is None or levels % 2:
            return 0.25
        if self.answers == 1 and math.isclose(self._box, 1.0, rel_tol=1e-9):
            return 0.0  # +- R and 0 are levels
        if self.diameter is not None:
            return 0.25
        return rounding_variance(self.block_norm * levels / (2 * self.range * math.sqrt(self.coordinates)))


@dataclass(frozen=True, kw_only=True)
class SumPlan(SumRequest, JsonText):
    """How to run a private sum. Made by `plan_sum`; frozen; goes to every user, the shuffler and the analyzer as JSON.

    Parameters
    ----------
    epsilon, delta, users, dim, norm, honest, rounds, neighbours : as in SumRequest
        What was asked for.
    calibration, max_inflation, max_bits, scalar, diameter : as in SumRequest
        How it was to be calibrated, and what else is known of the vectors.
    range, blocks, answers : as in SumRequest
        How vectors are encoded, as they are or rotated, and what the query claims of them.
    levels, noise_bits, noise_probability : int, float
        g, b and p of Algorithm 1: a coordinate is encoded as an integer in 0..g, and Bin(b, p) is added.
    mu : float or None
        Certified for a user who takes part in all rounds; None under the paper's calibrations, whose theorems are not Gaussian.
    slack : float
        Certified beside mu: what is added to delta.
    pure_epsilon : float, default 0.0
        The epsilon of one round under the paper's calibrations.
    theorem : str
        The statement that the guarantee rests on.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> SumPlan.from_json(plan.to_json()) == plan, plan.certified_delta <= plan.delta
    (True, True)
    """

    levels: int
    noise_bits: int
    noise_probability: float
    mu: float | None
    slack: float
    pure_epsilon: float = 0.0
    theorem: str

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "Use the plan as plan_sum made it."
        object.__setattr__(self, "levels", whole("levels", self.levels, at_least=1, remedy=remedy))
        object.__setattr__(self, "noise_bits", whole("noise_bits", self.noise_bits, at_least=1, remedy=remedy))
        real("noise_probability", self.noise_probability, above=0, below=1, remedy=remedy)
        if self.mu is not None:
            real("mu", self.mu, above=0, remedy=remedy)
        real("slack", self.slack, at_least=0, below=1, remedy=remedy)
        real("pure_epsilon", self.pure_epsilon, at_least=0, remedy=remedy)

    @property
    def guarantee(self) -> Guarantee:
        """What a user who takes part in all `rounds` rounds is promised."""
        return Guarantee(
            mu=self.mu or 0.0,
            slack=self.slack,
            neighbours=self.neighbours,
            honest=self.honest,
            theorem=self.theorem,
            pure_epsilon=self.pure_epsilon,
            pure_rounds=self.rounds if self.pure_epsilon else 0,
        )

    @property
    def certified_delta(self) -> float:
        """The delta certified at `epsilon` for the parameters in use: at most the delta asked for."""
        return self.guarantee.delta(self.epsilon)

    @property
    def bits_per_coordinate(self) -> int:
        """Messages that one user sends per coordinate and round: g + b."""
        return self.levels + self.noise_bits

    @property
    def bits_per_user(self) -> int:
        """Messages that one user sends in one round: (g + b) times the coordinates that it sends."""
        return self.bits_per_coordinate * self.coordinates

    @property
    def noise_std(self) -> float:
        """Standard deviation per coordinate of the estimated sum in one round, all users arrived, worst input."""
        return self.noise_std_for(self.users)

    @property
    def combination_std(self) -> float:
        """`noise_std` of a combination of coordinates whose weights have l2 norm 1: after a rotation rounding may give it more."""
        rounding = self.users * (0.25 - self._rounding(self.levels))
        return math.hypot(self.noise_std, self.step(self.levels) * self.blocks * math.sqrt(rounding))

    @property
    def inflation(self) -> float:
        """`noise_std` relative to the trusted curator's."""
        return self.noise_std / self.central_noise_std

    def noise_std_for(self, users: int) -> float:
        """`noise_std` where `users` arrived, at its largest over all inputs.

        Parameters
        ----------
        users : int
            The users that arrived.

        Returns
        -------
        float
            In units of the data.
        """
        return self.noise_std_with(self.levels, self.noise_bits, self.noise_probability, users)

    def prove(self) -> Proof:
        """Prove the guarantee again in ball arithmetic: what holds is a theorem about real numbers, not about margins.

        Needs the extra `proof` (python-flint). Takes a second or two at any number of users.

        Returns
        -------
        Proof
            Enclosures of c, ct, kappa, tau, mu and delta; `Proof.to_json` exports them (docs/certificates.md).

        Raises
        ------
        NoCertificateError
            If a figure of the plan is not above its enclosure, or cannot be enclosed.
        ArgumentError
            For the paper's calibrations, which do not rest on Theorem B.

        Examples
        --------
        >>> from croupier import plan_sum
        >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
        >>> plan.prove().delta.upper <= plan.certified_delta
        True
        """
        try:
            from ._proof import prove  # noqa: PLC0415  (needs an extra)
        except ModuleNotFoundError as error:
            if error.name != "flint":
                raise
            remedy = f"It comes with the extra `proof`: {how_to_install('proof')}"
            raise ModuleNotFoundError(f"python-flint is not installed. {remedy}", name="flint") from error

        return prove(self)

    def to_dict(self) -> dict[str, Any]:
        """The fields, then the figures that follow from them, in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        derived = {name: getattr(self, name) for name in _DERIVED}
        derived |= {} if self.range is None else {name: getattr(self, name) for name in _ROTATED}
        # the secrets of rounds are derived from this text: that of plans without these stays as it was
        own = {name: value for name, value in asdict(self).items() if name not in _LEFT_OUT or value != _LEFT_OUT[name]}
        return own | derived

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SumPlan:
        """Read a plan from its dictionary. The guarantee is certified again: a plan that promises too much is refused.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        SumPlan
            With the figures that are certified here.

        Raises
        ------
        ArgumentError
            If a field is unknown or missing, or the plan promises too much.
        """
        from .calibration import claims_at_most, is_proved, prove  # noqa: PLC0415  (calibration makes plans; a plan is certified where it enters)

        if not isinstance(values, dict):
            raise ArgumentError("plan", values, "a JSON object", "Pass what SumPlan.to_json() gave.")
        own = _LEFT_OUT | {name: value for name, value in values.items() if name not in (*_DERIVED, *_ROTATED)}
        known_fields(cls, own)
        plan = cls(**own)
        proved = prove(plan, plan.levels, plan.noise_bits, plan.noise_probability)
        # what is returned has the certified figures: the tolerance forgives another processor's last digits, and promises nothing
        if not (claims_at_most(plan, proved, tolerance=1e-6) and is_proved(proved)):
            raise ArgumentError(
                "plan",
                str(plan),
                f"one whose claim follows from its parameters; they give: {proved.guarantee}",
                "Do not use it; ask for the output of plan_sum.",
            )
        return proved

    def __str__(self) -> str:
        return (
            f"({round_up(self.epsilon)}, {round_up(self.delta)})-DP sum of {self.users} x {self.dim} at norm {self.norm:g}"
            f"{'' if self.diameter is None else f' and diameter {self.diameter:g}'}: "
            f"{self.levels} levels + {self.noise_bits} noise bits (p = {self.noise_probability:g}) per coordinate"
            f"{'' if self.range is None else f' of {self.padded} rotated ones'}, "
            f"noise {self.noise_std:.4g} = {self.inflation:.4g} x central; "
            f"certified: {certified_line(self.guarantee, self.epsilon, self.delta)}"
        )


_DERIVED = (
    "honest_users",
    "bits_per_coordinate",
    "bits_per_user",
    "noise_std",
    "central_noise_std",
    "inflation",
    "certified_delta",
)
# Figures that follow from the fields of a rotation, and fields that plans without it leave out of their text.
_ROTATED = ("padded", "coordinates", "bias_bound", "bias_rms")
_LEFT_OUT: dict[str, Any] = {"diameter": None, "range": None, "blocks": 1, "answers": None}
REQUEST_FIELDS = tuple(f.name for f in fields(SumRequest))


# What clipping rotated coordinates to a box moves a vector by: a bound for its length, and a smaller one for each coordinate. Both
# are root mean squares over rotations, for a vector x of norm 1 that is fixed before the rotation and a box of t / sqrt(d'). No
# guarantee rests on them: they are about accuracy alone. Notation, lemma and the first two bounds are in docs/accounting.md,
# section 10: psi for the whole vector, and C E_0 for E V^2, V = mean_j c(y_j) what one coordinate moves by.

Floats = NDArray[np.float64]
# Doubles are off by less than this part of a bound for boxes up to 9; for larger ones rounding raises the bound.
_UP = 1 + 1e-9
# Smaller boxes have u < 4.3, and in larger ones the second bound would take long.
_SPREAD_FROM, _SPREAD_TO = 4.7, 9.0
_UNRELATED = 0.25


def cubes(below: Floats, std: Floats) -> Floats:
    """E (std G - below)_+^3 for a Gaussian G."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = below / std
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        found = std**3 * ((z * z + 2) * density - z * (z * z + 3) * ndtr(-z))
    return np.where(std > 0, np.maximum(found, 0.0), np.maximum(-below, 0.0) ** 3)


def mixed_cubes(flat: int, mass: float, start: float) -> float:
    """E (|X| - start)_+^3 for X = sqrt(mass / flat) (so many signs) + sqrt(1 - mass) G."""
    signs = np.arange(flat + 1)
    weights = np.exp(gammaln(flat + 1) - gammaln(signs + 1) - gammaln(flat - signs + 1) - flat * math.log(2))
    below = np.asarray(start - (2 * signs - flat) * math.sqrt(mass / max(1, flat)), dtype=np.float64)
    return 2 * float(weights @ cubes(below, np.full(flat + 1, math.sqrt(max(0.0, 1 - mass)))))


@lru_cache(maxsize=1024)
def vector_bias(box: float, padded: int) -> float:
    """sqrt(psi(t)): how long the part is that is clipped, at most; 0 where no coordinate is ever that large."""
    if box * box >= padded:
        return 0.0
    start = _start(box)
    return min(1.0, _UP * math.sqrt(_square(box, start) * mixed_cubes(0, 0.0, start)))


@lru_cache(maxsize=1024)
def coordinate_bias(box: float, padded: int) -> float:
    """sqrt(chi(t)): what any one coordinate of the vector is moved by, at most.

    *The second bound for one coordinate.* Fix any concave sequence m_1, m_2, ..., m_N = 1, with m_0 = 0.

    (1) If n of the p_l add up to m_n or more, the lemma gives E V^2 <= C E_(n, m_n).

    (2) Otherwise x is spread. Signs may be multiplied by the signs of any row, so the law of (y_j, y_k) depends on j + k alone, and
    E V^2 = mean_k E c(y_0) c(y_k). Where y_0 and y_k have different signs the product is at most 0. Where they have the same, it is
    at most (|U| - t)_+^2 for U = (y_0 + y_k)/2, as a b <= (a + b)^2/4. Now y_0 = sum_l s_l x_l and y_k = sum_l s_l chi_l(k) x_l, so
    U is the sum over the l with chi_l(k) = 1, and its variance is at most (1 + rho_k)/2, rho_k = sum_l p_l chi_l(k). By the lemma E
    V^2 <= psi mean_k K(rho_k), K(rho) = E f(sqrt((1 + rho)/2) G) / E_0, which rises from K(-1) = 0 to K(1) = 1.

    With v = (1 + rho)/2 and s = u/sqrt(v), K' is proportional to E (sqrt(v) |G| - u)_+ = 2 sqrt(v) (phi(s) - s Q(s)), whose
    derivative by v is phi(s)/sqrt(v). As phi(s) - s Q(s) <= phi(s)/(1 + s^2), d ln K'/dv >= (1 + s^2)/(2 v), that is

        d ln K' / d ln rho  >=  rho (1 + rho + 2 u^2) / (2 (1 + rho)^2),

    which rises with rho in [0, 1] and is above 3 at 1/4 if u >= 4.3. From there on K'/rho^3 rises, so K is a convex function of
    rho^4, and below its chord: K <= K(1/4) + rho^4. For smaller rho K <= K(1/4).

    rho^2 is the Walsh transform of p * p, so by Parseval and Young's inequality mean_k rho_k^4 = ||p * p||_2^2 <= (sum_l
    p_l^(4/3))^3. The partial sums of the p_l in falling order are below the m_n, so p is majorized by the steps m_n - m_(n-1), and
    the sum, which is convex, is at most theirs. So E V^2 <= psi (K(1/4) + (sum_n (m_n - m_(n-1))^(4/3))^3).

    The larger of (1) and (2) bounds E V^2. The sequence min(1, 2.75 sqrt(n + 1/2) / t^2) makes both about equal.
    """
    if box * box >= padded:
        return 0.0
    start = _start(box)
    farthest = (5 * box + math.sqrt(25 * box * box - 24 * box * start)) / 6  # where (1 - t/y)^2 / (y - u)^3 is largest
    factor = (1 - box / farthest) ** 2 / (farthest - start) ** 3
    whole = mixed_cubes(0, 0.0, start)
    psi = _square(box, start) * whole
    bound = min(psi, factor * whole)
    if _SPREAD_FROM <= box <= _SPREAD_TO:
        bound = min(bound, max(psi * _related(box, start), factor * _concentrated(box, start)))
    return min(1.0, _UP * math.sqrt(bound))


def _start(box: float) -> float:
    """u: where the cube begins that is above the square of what is clipped; any number from 0 to t will do."""
    return max(box - 1.1 / box, box / 2)


def _square(box: float, start: float) -> float:
    """The largest (y - t)_+^2 / (y - u)^3, at y = 3 t - 2 u."""
    return 4 / (27 * (box - start))


def _masses(box: float) -> Floats:
    """m_1, m_2, ..., 1: vectors are spread if no n squares of entries add up to m_n."""
    share = 2.75 / box**2
    return np.asarray(np.minimum(1.0, share * np.sqrt(np.arange(1, math.ceil(share**-2 - 0.5) + 1) + 0.5)), dtype=np.float64)


def _related(box: float, start: float) -> float:
    """For spread vectors: K(1/4) + (sum p^(4/3))^3."""
    entries = np.diff(_masses(box), prepend=0.0)
    std = math.sqrt((1 + _UNRELATED) / 2)
    unrelated = 2 * float(cubes(np.array([start]), np.array([std]))[0]) / mixed_cubes(0, 0.0, start)
    return unrelated + float(np.sum(entries ** (4 / 3))) ** 3


def _concentrated(box: float, start: float) -> float:
    """For other vectors: the largest E_(n, m_n)."""
    return max(mixed_cubes(number, float(mass), start) for number, mass in enumerate(_masses(box), 1))
