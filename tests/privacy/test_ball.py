"""The fast certificate against ball arithmetic: where it is not above the enclosure, it is wrong. And what is exported."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from flint import arb, ctx
from oracles import exact_binomial, exact_normal_score
from scipy.special import ndtri

from benchmarks.proofs import measuring as proofs
from croupier import ArgumentError, NoCertificateError, SumPlan, plan_sum
from croupier.privacy import _proof as ball
from croupier.privacy import certificate, certify
from croupier.privacy._proof import SHIFT_FACTOR, Enclosure, ball_constants, gaussian_delta_ball
from croupier.privacy.calibration import is_proved
from croupier.privacy.calibration import prove as prove_fast

ROOT = Path(__file__).parent.parent.parent
VECTORS = json.loads((Path(__file__).parent / "vectors" / "certificates.json").read_text())
CORNERS = [corner for corner in proofs.corners() if corner[0] * corner[1] * (1 - corner[1]) < 10**5]


def enclosed(fast, trials, probability, shift, reach, dim):
    return ball_constants(
        trials, probability, shift=Fraction(shift) * SHIFT_FACTOR, reach=reach, dim=dim, low=fast.low, high=fast.high
    )


def above(figure, enclosure):
    """Whether a float is at or above the upper end of a ball."""
    return bool(enclosure.upper() <= arb(figure))


# --- balls hold what they enclose --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "probability"), [(60, 0.5), (300, 0.2), (1_000, 2.0**-5), (300, 0.9)])
def test_enclosures_hold_the_constants_as_50_digits_have_them(trials, probability):
    """c, ct, kappa, tau and mu from their definitions: another arithmetic, another way to sum, another inverse."""
    shift, reach, dim = 2.5, 3, 7
    fast = certify(trials, probability, shift=shift, reach=reach, dim=dim, tail=1e-4)
    found = ball_constants(trials, probability, shift=Fraction(shift), reach=reach, dim=dim, low=fast.low, high=fast.high)
    F, f = exact_binomial(fast.low, fast.high - fast.low, trials, probability)
    with mpmath.workdps(50):
        z = [exact_normal_score(q, guess) for q, guess in zip(F, ndtri([float(q) for q in F]), strict=True)]
        density = [mpmath.npdf(score) for score in z]
        c = max(z[i] - z[i - 1] for i in range(1, len(z)))
        ct = max(f[i] / min(density[i - 1], density[i]) for i in range(1, len(z)))
        kappa = min(c * (1 - c / ct), ct**2 * max(abs(z[0]), abs(z[-1]), 2 * c) / 8)
        tau = max(F[1] + 1 - F[-reach - 2], F[reach + 1] + 1 - F[-2])
        mu = min(ct * shift, c * shift + kappa * mpmath.sqrt(dim))
        assert found.bend is None
        for figure, exact in zip(found[:5], (c, ct, kappa, tau, mu), strict=True):
            ends = [mpmath.mpf(str(end)) for end in (Enclosure.of(figure).lower, Enclosure.of(figure).upper)]
            assert ends[0] <= exact <= ends[1]
            assert ends[1] - ends[0] <= exact * mpmath.mpf(10) ** -18


@pytest.mark.parametrize(
    ("trials", "probability", "tail"), [(40_000, 0.5, 1e-10), (10**6, 0.03, 1e-6), (10**6, 1 - 2.0**-6, 1e-100), (10**6, 0.5, 0.2)]
)
def test_blocks_hold_what_points_find(monkeypatch, trials, probability, tail):
    """The bound by concavity, and sums in blocks, on windows that can be met point by point."""
    reach = 20
    fast = certify(trials, probability, shift=20.0, reach=reach, dim=1, tail=tail)
    scanned = enclosed(fast, trials, probability, 20, reach, 1)
    monkeypatch.setattr(ball, "SCAN_POINTS", 1)
    monkeypatch.setattr(ball, "SLOPE_BLOCK", Fraction(1, 50))
    monkeypatch.setattr(ball, "TAIL_BLOCK", Fraction(1, 30))
    blocks = enclosed(fast, trials, probability, 20, reach, 1)
    assert blocks.step is None
    assert blocks.slope.contains(scanned.slope)
    assert blocks.tau.contains(scanned.tau)
    assert blocks.slope.rad() <= 3e-3 * blocks.slope.mid()
    assert blocks.tau.rad() <= 1e-4 * blocks.tau.mid()


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.3), (1.0, 0.25), (8.0, 0.5), (0.01, 5.0), (30.0, 1.0)])
def test_the_gaussian_divergence_is_enclosed_at_both_ends_of_mu(epsilon, mu):
    found = Enclosure.of(gaussian_delta_ball(Fraction(epsilon), arb(mu, mu * 1e-3)))
    with mpmath.workdps(60):
        ends = []
        for m in (mpmath.mpf(mu) * (1 - mpmath.mpf("1e-3")), mpmath.mpf(mu) * (1 + mpmath.mpf("1e-3"))):
            ends.append(mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m))
        assert mpmath.mpf(str(found.lower)) <= ends[0] < ends[1] <= mpmath.mpf(str(found.upper))
        assert mpmath.mpf(str(found.upper)) <= ends[1] * mpmath.mpf("1.0001")


@pytest.mark.parametrize(("low", "high", "reach"), [(-1, 50, 3), (20, 100, 3), (20, 23, 3), (20, 60, 0)])
def test_a_window_that_is_none_is_refused(low, high, reach):
    with pytest.raises(NoCertificateError, match="not a window"):
        ball_constants(100, 0.5, shift=Fraction(1), reach=reach, dim=1, low=low, high=high)


def test_ends_are_rounded_outward():
    with ctx.workprec(ball.PRECISION):
        third = arb(1) / 3
    found = Enclosure.of(third)
    assert Fraction(found.lower) < Fraction(1, 3) < Fraction(found.upper)
    assert found.upper - found.lower <= Decimal("1e-19")
    assert str(found.rounded(3)) == "[0.333, 0.334]"
    assert str(Enclosure(Decimal("-0.12345"), Decimal("-0.12341")).rounded(4)) == "[-0.1235, -0.1234]"


# --- the fast certificate is above the enclosures ----------------------------------------------------------------------


@pytest.mark.parametrize("corner", random.Random(5).sample(CORNERS, 60), ids=str)
def test_fast_figures_are_above_the_enclosures_in_corners(corner):
    """Trials to 10^12, probabilities 2^-k and 1 - 2^-k, tails to 1e-300: a part of what benchmarks/proofs goes through."""
    trials, probability, reach, dim, tail = corner
    try:
        fast = certify(trials, probability, shift=float(reach), reach=reach, dim=dim, tail=tail)
    except NoCertificateError:
        return  # nothing is promised
    found = enclosed(fast, trials, probability, reach, reach, dim)
    assert above(fast.mu, found.mu)
    assert above(fast.tau, found.tau)
    if found.step is not None:
        assert fast.slope == pytest.approx(float(found.slope), rel=1e-9)
        assert fast.step == pytest.approx(float(found.step), rel=1e-9)


def test_random_plans_are_proved():
    """`prove` refuses a plan with a figure below its enclosure. 520 of these are in benchmarks/results/proofs.json."""
    figures = proofs.sweep_plans(12, seed=7)
    assert figures["mu"]["least"] > 0
    assert figures["delta"]["least"] > 0


@pytest.mark.parametrize(
    ("trials", "probability", "tail"),
    [(3_000, 0.5, 1e-313), (20_000, 0.5, 1e-318), (10**6, 2.0**-7, 1e-316), (10**12, 2.0**-26, 1e-316)],
)
def test_tails_with_fewer_digits_than_floats_have_are_refused(trials, probability, tail):
    """Below 2.2e-308 floats lose digits: mu came out up to 5e-5 below what it is, and was handed out."""
    with pytest.raises(NoCertificateError, match="beyond floating point"):
        certify(trials, probability, shift=5.0, reach=5, dim=10, tail=tail)


@pytest.mark.parametrize(
    ("trials", "probability", "score"),
    [
        (688_386_474, 0.2666015625, 17.085443420156157),
        (621_237_131_880, 0.999755859375, 3.744492850159688),
        (962_352_904, 0.21484375, 3.356840329591162),
        (885_257_758_673, 2.0**-12, 1.7425567351628304),
        (10**11, 0.5, 0.001),
        (10**12, 2.0**-10, 0.02),
        (2_480_799, 0.5, 28.6),
        (10**6, 0.5, 2.0),
    ],
)
def test_steps_are_right_to_a_twentieth_of_the_margin(trials, probability, score):
    """As differences of scores they were wrong by 3e-8, three times the margin that is to cover it."""
    y = int(trials * probability + score * math.sqrt(trials * probability * (1 - probability)))
    step, slope, _ = certificate._scan(trials, probability, y - 1, y)
    with ctx.workprec(ball.PRECISION):
        mirror = ball._Half(trials, 1 - Fraction(probability))
        tail = mirror.mass_by_blocks(trials - 1 - y) if trials > 10**10 and score < 1 else mirror.mass(trials - 1 - y)
        pmf = mirror.pmf(trials - y)
        upper, lower = -ball._score(tail), -ball._score(tail + pmf)
        exact_slope = pmf / ball._density(upper).min(ball._density(lower))
        # in the middle of wide noise the tail is known to 1e-9 only, which moves both scores alike
        tolerance = certificate.SLOPE_MARGIN / 20
        assert abs(step / (upper - lower).mid() - 1) < (tolerance if tail.rel_accuracy_bits() > 60 else 1e-6)
        assert abs(slope / exact_slope.mid() - 1) < tolerance


# --- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["tight", "paper"])
@pytest.mark.parametrize("part", [5e-7, 1e-9, 3e-16])
@pytest.mark.parametrize("figure", ["mu", "slack", "pure_epsilon"])
def test_a_claim_that_is_a_little_stronger_than_proved_is_not_proved(figure, part, calibration):
    epsilon = 1.0 if calibration == "tight" else 0.9
    plan = plan_sum(epsilon=epsilon, delta=1e-6, users=1_000, dim=3, calibration=calibration)
    assert is_proved(plan)
    value = getattr(plan, figure)
    if not value:
        pytest.skip("this calibration has no such figure")
    edited = replace(plan, **{figure: min(value * (1 - part), math.nextafter(value, 0))})
    assert not is_proved(edited)
    assert is_proved(replace(plan, **{figure: math.nextafter(value, 1e9)}))
    # what is read from JSON carries the proved figures, so another processor's last digits do no harm
    assert getattr(SumPlan.from_json(edited.to_json()), figure) == value


def test_a_claim_that_was_edited_by_hand_is_refused_where_it_is_read():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=1_000, dim=3)
    with pytest.raises(ArgumentError, match="follows from its parameters"):
        SumPlan.from_json(replace(plan, mu=plan.mu * (1 - 1e-5)).to_json())


def test_a_plan_that_claims_too_much_has_no_proof():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=300, dim=3)
    proof = plan.prove()
    assert proof.plan == plan
    for figure in ("mu", "slack"):
        with pytest.raises(NoCertificateError, match=f"{figure} = .* not proved"):
            replace(plan, **{figure: getattr(plan, figure) * (1 - 1e-7)}).prove()


def test_the_papers_plans_have_no_proof_in_balls():
    with pytest.raises(ArgumentError, match="Theorem B"):
        plan_sum(epsilon=1.0, delta=1e-6, users=300, dim=3, calibration="paper").prove()


def test_rounds_and_zero_out_are_in_the_proof():
    """Four rounds double mu and quadruple the slack."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=500, dim=4, rounds=4, neighbours="zero-out")
    proof = plan.prove()
    assert float(2 * proof.mu.upper) == pytest.approx(plan.mu, rel=1e-7)
    assert float(16 * proof.tau.upper) == pytest.approx(plan.slack, rel=1e-7)
    assert proof.delta.upper <= Decimal(plan.certified_delta) <= proof.delta.upper * Decimal("1.00001")
    assert proof.shift == Fraction(plan.levels, 2) * SHIFT_FACTOR


# --- certificates and vectors ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def holds():
    """The program that docs/certificates.md names."""
    assert "python tools/check_certificate.py certificate.json" in (ROOT / "docs/certificates.md").read_text()
    program = (ROOT / "tools/check_certificate.py").read_text()
    assert "croupier" not in program
    scope = {"__name__": "checker"}
    exec(program, scope)
    yield scope["holds"]
    mpmath.mp.dps = 15


TAMPER = {
    "smaller delta": lambda c: c["bounds"].update(delta=["0", less(c["bounds"]["delta"][1])]),
    "smaller mu": lambda c: c["bounds"].update(mu=["0", less(c["bounds"]["mu"][1])]),
    "smaller tau": lambda c: c["bounds"].update(tau=["0", less(c["bounds"]["tau"][1])]),
    "smaller step": lambda c: c["bounds"].update(step=["0", less(c["bounds"]["step"][1])]),
    "no mu": lambda c: c["bounds"].pop("mu"),
    "narrower window": lambda c: c.update(high=c["high"] - 1),
    "wider window": lambda c: c.update(low=c["low"] - 1),
    "more trials": lambda c: c.update(trials=c["trials"] + 1),
    "fewer levels": lambda c: c.update(shift=str(Fraction(c["shift"]) - Fraction(1, 10**9))),
    "fewer rounds": lambda c: c.update(rounds=c["rounds"] - 1),
    "smaller epsilon": lambda c: c.update(epsilon="999999/1000000"),
    "another p": lambda c: c["plan"].update(noise_probability=0.25),
}


def less(text):
    return str(Decimal(text) * (1 - Decimal("1e-16")))


def check(folder, certificate):
    """What the program says of a certificate."""
    (folder / "certificate.json").write_text(json.dumps(certificate))
    command = [sys.executable, ROOT / "tools/check_certificate.py", "certificate.json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_reader_can_check_a_certificate(tmp_path):
    proof = plan_sum(epsilon=1.0, delta=1e-6, users=200, dim=5, honest=0.9).prove()
    plan_said, found = check(tmp_path, json.loads(proof.to_json())).splitlines()
    assert plan_said == "180 honest users, 5 coordinates, 1 round(s), replace-one:"
    assert found == f"epsilon 1.0, delta <= {proof.delta.upper} holds"


def test_the_checker_says_that_it_does_not_know_theorem_e(tmp_path):
    certificate = plan_sum(epsilon=1.0, delta=1e-6, users=10, dim=100).prove().to_dict()
    assert "bend" in certificate["bounds"]
    assert check(tmp_path, certificate).endswith(" is NOT proved (Theorem E, which this program does not know)\n")


ENCODINGS = {
    "rotated": {},
    "rotated, zero-out": {"neighbours": "zero-out"},
    "rotated, by a diameter": {"diameter": 3.3, "norm": 3.0},
    "as it is": {"rotation": None},
    "as it is, by a diameter": {"rotation": None, "diameter": 3.3, "norm": 3.0},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_checker_finds_out_how_far_encodings_are_apart(holds, tmp_path, encoding):
    """It took no certificate of a rotated plan, and asked S = g of all."""
    plan = plan_sum(**{"epsilon": 1.0, "delta": 1e-6, "users": 500, "dim": 50} | ENCODINGS[encoding])
    assert (plan.range is not None) == encoding.startswith("rotated")
    proof = plan.prove()
    certificate = proof.to_dict()
    assert check(tmp_path, certificate).endswith(f"{plan.neighbours}:\nepsilon 1.0, delta <= {proof.delta.upper} holds\n")
    assert proof.shift == pytest.approx(Fraction(plan.encoded_shift(plan.levels)) * SHIFT_FACTOR, rel=1e-15)
    assert not holds(certificate | {"shift": str(proof.shift * (1 - Fraction(1, 10**30)))})
    assert not holds(certificate | {"dim": certificate["dim"] - 1})
    assert not holds(certificate | {"reach": certificate["reach"] - 1})
    for change in ({"range": 0.0}, {"norm": 0.0}, {"diameter": plan.norm / 2}, {"blocks": 3}, {"blocks": 0}):
        assert not holds(certificate | {"plan": certificate["plan"] | change}), change


def test_the_certificate_of_a_rotated_plan_with_the_distance_of_a_plain_one_is_refused(tmp_path):
    """All that follows from S = g is true: nothing but the distance is wrong."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=500, dim=50)
    proof = replace(plan, range=None, dim=64).prove()
    certificate = proof.to_dict()
    assert check(tmp_path, certificate).endswith(" holds\n")
    certificate["plan"] |= {"range": plan.range, "dim": plan.dim}
    assert check(tmp_path, certificate).endswith(" is NOT proved\n")


def test_the_checker_knows_blocks(holds):
    """What a user who sends one block of a rotated vector may move."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=500, dim=50)
    for blocks in (2, 4):
        cut = prove_fast(replace(plan, blocks=blocks), plan.levels, plan.noise_bits, plan.noise_probability)
        certificate = cut.prove().to_dict()
        assert certificate["dim"] == 64 // blocks
        assert holds(certificate)
        less_far = Fraction(certificate["shift"]) * (1 - Fraction(1, 10**14))
        assert not holds(certificate | {"shift": str(less_far)})
        for change in ({"range": None, "dim": 64}, {"diameter": 2.0}, {"blocks": 2 * blocks}):
            assert not holds(certificate | {"plan": certificate["plan"] | change}), change


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_the_checker_sees_whatever_was_tampered_with(holds, neighbours):
    text = plan_sum(epsilon=1.0, delta=1e-4, users=20, dim=2, rounds=2, neighbours=neighbours, max_inflation=1.5).prove().to_json()
    assert holds(json.loads(text))
    for what, tamper in TAMPER.items():
        certificate = json.loads(text)
        tamper(certificate)
        assert not holds(certificate), what


def test_the_checker_holds_wide_windows_to_the_same(holds, monkeypatch):
    """A certificate bounded in blocks has no step and no bulge; its slope and mu are a little above what points find."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=200, dim=2)
    monkeypatch.setattr(ball, "SCAN_POINTS", 1)
    # blocks take mu = ct S, which is above the scanned mu of the plan: claim that
    monkeypatch.setattr(certificate, "SCAN_POINTS", 1)
    certify.cache_clear()
    wide = prove_fast(replace(plan, delta=1e-5), plan.levels, plan.noise_bits, plan.noise_probability)
    proof = wide.prove()
    certify.cache_clear()
    assert proof.step is None
    assert "step" not in proof.to_dict()["bounds"]
    assert holds(proof.to_dict())


@pytest.mark.parametrize("vector", VECTORS["constants"], ids=lambda vector: vector["case"])
def test_the_vectors_of_constants_hold(vector):
    """Fast figures are above the published brackets, and close to them; narrow brackets are made again, digit for digit."""
    shift = Fraction(vector["shift"]) / SHIFT_FACTOR
    given = {"reach": vector["reach"], "dim": vector["dim"]}
    trials, probability = vector["trials"], float(Fraction(vector["probability"]))
    fast = certify(trials, probability, shift=float(shift), tail=vector["tail"], **given)
    assert (fast.low, fast.high) == (vector["low"], vector["high"])
    for name, close in (("mu", 1.02), ("tau", 1 + 2e-8)):
        upper = Fraction(vector["brackets"][name][1])
        assert upper <= Fraction(getattr(fast, name)) <= upper * Fraction(close)
        assert getattr(fast, name) == pytest.approx(vector["fast"][name], rel=1e-8, abs=0)
    if fast.high - fast.low < 5_000:
        found = ball_constants(trials, probability, shift=Fraction(vector["shift"]), low=fast.low, high=fast.high, **given)
        brackets = {name: Enclosure.of(figure) for name, figure in found._asdict().items() if figure is not None}
        assert {name: [str(b.lower), str(b.upper)] for name, b in brackets.items()} == vector["brackets"]


@pytest.mark.parametrize("vector", VECTORS["plans"], ids=lambda vector: str(vector["request"]))
def test_the_vectors_of_plans_hold(vector):
    request = dict(vector["request"])
    request["norm"] = request.pop("width") / 2 if "width" in request else 1.0
    plan = plan_sum(**{"dim": 1, "rotation": None} | request)
    assert {name: getattr(plan, name) for name in vector["plan"]} == vector["plan"]
    upper = Fraction(vector["bounds"]["delta"][1])
    assert upper <= Fraction(plan.certified_delta) <= Fraction(plan.delta)
    assert plan.certified_delta == pytest.approx(vector["fast"]["delta"], rel=1e-6, abs=0)


def test_the_vectors_cover_what_they_say():
    constants_, plans = VECTORS["constants"], VECTORS["plans"]
    assert sum("step" not in vector["brackets"] for vector in constants_) >= 4
    assert {vector["tail"] for vector in constants_} >= {0.3, 1e-12, 1e-100, 1e-300}
    assert {vector["trials"] for vector in constants_} >= {60, 10**12}
    assert any("step" not in vector["bounds"] for vector in plans)
    assert {vector["rounds"] for vector in plans} == {1, 100}
