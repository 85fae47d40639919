"""invalid="blank": whether a run ends, and what it says, does not depend on whether somebody's record is valid."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from scipy.sparse import csr_array

import croupier as cr
from croupier.optimizer._gradients import Gradients
from croupier.population import ArrayPopulation, ParquetPopulation
from croupier.population._blocks import BlockPopulation
from croupier.population.population import Batch, Question
from croupier.problem import Ball, CustomProblem, Hinge, Huber, Logistic, Multinomial, Pinball, Problem, Squared
from croupier.problem.problem import Smoothed
from croupier.protocol import _fused as fused
from croupier.protocol.randomness import Secret
from croupier.validation import numbers_or_nan, taken

USERS = 1200
BALL = Ball(dim=3, radius=5.0)
PROBLEM = Problem(loss=Logistic(), domain=BALL)
SETTINGS = {"epsilon": 2.0, "delta": 1e-6, "rounds": 4, "rule": "practical", "interactivity": "full"}
# What a record may hold that is not valid: of its features, and its label.
BAD = {
    "NaN": (np.nan, 1.0),
    "infinity": (np.inf, 1.0),
    "minus infinity": (-np.inf, 0.0),
    "a label that is none": (0.1, 7.0),
    "no label": (0.1, np.nan),
    "nothing at all": (np.nan, np.inf),
}


def people():
    X = np.random.default_rng(0).normal(size=(USERS, 3)) / 3
    return X, (X[:, 0] > 0).astype(float)


def with_bad(kind, users=(5,)):
    X, y = people()
    for user in users:
        X[user, 1], y[user] = BAD[kind]
    return X, y


def with_zeros(users=(5,)):
    """The same people, with rows of zeros for these: what a blank is, made by hand."""
    X, y = people()
    X[list(users)], y[list(users)] = 0.0, 0.0
    return X, y


def theta(data, problem=PROBLEM, **options):
    return cr.minimize(problem, data, seed=4, **(SETTINGS | options)).theta


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("interactivity", ["full", "sequential"])
def test_whether_a_run_ends_does_not_depend_on_one_record(kind, interactivity):
    """The attack: whoever sees whether it was refused knows something of record 5 for certain, whatever epsilon is."""
    outcomes = [
        cr.minimize(PROBLEM, data, **(SETTINGS | {"interactivity": interactivity}), invalid="blank")
        for data in (people(), with_bad(kind))
    ]
    assert outcomes[0].guarantee == outcomes[1].guarantee
    assert outcomes[0].guarantee is not None
    assert [r.users for r in outcomes[0].history] == [r.users for r in outcomes[1].history]
    assert outcomes[0].users == outcomes[1].users == USERS


@pytest.mark.parametrize("kind", BAD)
def test_refuse_is_as_before(kind):
    with pytest.raises(cr.ArgumentError):
        theta(with_bad(kind))


def test_other_words_are_refused():
    with pytest.raises(cr.ArgumentError, match="invalid = 'drop'"):
        theta(people(), invalid="drop")


def test_valid_records_give_the_same_bits_either_way():
    np.testing.assert_array_equal(theta(people()), theta(people(), invalid="blank"))


@pytest.mark.parametrize("kind", BAD)
def test_a_blank_is_the_same_whatever_the_record_holds(kind):
    np.testing.assert_array_equal(theta(with_bad(kind), invalid="blank"), theta(with_zeros()))


@pytest.mark.parametrize("kind", ["NaN", "a label that is none"])
@pytest.mark.parametrize(
    "loss", [Hinge(), Squared(), Huber(), Pinball(), Multinomial(classes=3)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_a_blank_has_the_regularisers_gradient_alone_and_keeps_the_bound(kind, loss, l2):
    problem = Problem(loss=loss, domain=Ball(dim=3 * loss.outputs, radius=2.0), l2=l2)
    X, y = with_bad("NaN" if kind == "NaN" or not hasattr(loss, "classes") else kind, users=(0, 5))
    point = np.linspace(-1, 1, problem.dim)
    for objective in (problem, Smoothed(problem, 3.0)):
        vectors = Gradients(objective, point, blank=True)(X, y)
        clean = Gradients(objective, point)(*with_zeros((0, 5)))
        np.testing.assert_array_equal(vectors, clean)
        assert np.linalg.norm(vectors, axis=1).max() <= problem.lipschitz * (1 + 1e-9)
        if not l2:
            assert not vectors[[0, 5]].any()


def test_a_batch_of_blanks_alone_is_zeros():
    X, y = np.full((4, 3), np.nan), np.zeros(4)
    for problem in (PROBLEM, Problem(loss=Pinball(), domain=BALL), CustomProblem(lambda t, X, y: X, BALL, lipschitz=1.0)):
        assert not Gradients(problem, np.ones(3), blank=True)(X, y).any()


# --- the same bits wherever the records are


class Own:
    """A block of somebody's own class."""

    def __init__(self, X, y):
        self.X, self.y, self.users = X, y, len(X)

    def read(self):
        return self.X, self.y


def stored(folder, X, y, **options):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    pq.write_table(table, folder / "people.parquet", row_group_size=USERS)
    return ParquetPopulation(folder / "people.parquet", target="y", **options)


@pytest.mark.parametrize("kind", BAD)
def test_memory_files_and_blocks_agree_to_the_bit(tmp_path, kind):
    X, y = with_bad(kind)
    expected = theta((X, y), invalid="blank")
    for population in (
        ArrayPopulation(csr_array(X), y, invalid="blank"),
        stored(tmp_path, X, y),
        stored(tmp_path, X, y, keep=True),
        BlockPopulation([Own(X, y)]),
    ):
        np.testing.assert_array_equal(theta(population, invalid="blank"), expected)


@pytest.mark.parametrize("kind", BAD)
def test_the_compiled_pass_agrees_with_the_plain_one(monkeypatch, kind):
    if fused.kernel() is None:
        pytest.skip("numba is not installed")
    plain = theta(with_bad(kind), invalid="blank")
    monkeypatch.setattr(fused, "PATIENCE", -1)
    np.testing.assert_array_equal(theta(with_bad(kind), invalid="blank"), plain)


def test_faithful_messages_take_blanks_too():
    X, y = with_bad("NaN")
    population = ArrayPopulation(X, y, mode="faithful", invalid="blank")
    plan = cr.plan_sum(epsilon=4.0, delta=1e-6, users=USERS, dim=3)
    question = Question(Gradients(PROBLEM, np.zeros(3), blank=True), Batch.everyone(USERS), plan, Secret.of_seed(1))
    assert np.isfinite(population.answer(question).sum).all()


# --- people with several rows


def test_a_bad_row_adds_nothing_to_its_persons_mean_which_stays_within_the_bound():
    X, y = with_bad("NaN", users=(0, 1, 5))
    groups = np.arange(USERS) // 3
    np.testing.assert_array_equal(
        theta(ArrayPopulation(X, y, groups=groups, invalid="blank"), invalid="blank"),
        theta(ArrayPopulation(*with_zeros((0, 1, 5)), groups=groups)),
    )
    population = ArrayPopulation(X, y, groups=groups, invalid="blank")
    plan = cr.plan_sum(epsilon=2.0, delta=1e-6, users=population.users, dim=3)
    question = Question(Gradients(PROBLEM, np.ones(3), blank=True), Batch.everyone(population.users), plan, Secret.of_seed(1))
    vectors = np.vstack(list(population.shard.vectors(question)))
    assert np.linalg.norm(vectors, axis=1).max() <= PROBLEM.lipschitz
    np.testing.assert_allclose(vectors[0], PROBLEM.gradients(np.ones(3), X[2:3], y[2:3])[0] / 3)


def test_a_row_that_is_nobodys_is_left_out():
    X, y = people()
    groups = (np.arange(USERS) // 3).astype(float)
    groups[7] = np.nan
    kept = np.arange(USERS) != 7
    found = ArrayPopulation(X, y, groups=groups, invalid="blank")
    np.testing.assert_array_equal(theta(found, invalid="blank"), theta(ArrayPopulation(X[kept], y[kept], groups=groups[kept])))
    with pytest.raises(cr.ArgumentError, match="missing label"):
        ArrayPopulation(X, y, groups=groups)


# --- what is still refused, and what is said


def test_what_is_wrong_whatever_the_records_hold_is_refused():
    X, y = people()
    with pytest.raises(cr.ArgumentError, match=r"X\.shape"):
        theta((X[:, :2], y), invalid="blank")
    with pytest.raises(cr.ArgumentError, match="X alone"):
        theta(X, invalid="blank")
    with pytest.raises(cr.ArgumentError, match="as long as X"):
        theta((X, y[:-1]), invalid="blank")


def test_nothing_is_said_of_blanks(capfd, recwarn):
    warnings.simplefilter("always")
    X, y = with_bad("infinity", users=range(40))
    X[50] = 1e300
    result = cr.minimize(PROBLEM, (X, y), **SETTINGS, invalid="blank")
    assert [str(warning.message) for warning in recwarn] == []
    assert capfd.readouterr() == ("", "")
    assert "blank" not in result.to_json()


def test_one_text_in_a_list_does_not_make_texts_of_other_peoples_numbers():
    """As an array of numpy's own choosing all would be text: 'True' is no number, and everybody would be blank for one."""
    X, y = people()
    rows, labels = X.tolist(), [bool(label) for label in y]
    rows[5][1], labels[9] = "unknown", "perhaps"
    np.testing.assert_array_equal(theta((rows, labels), invalid="blank"), theta(with_zeros((5, 9))))


def test_one_whole_number_missing_in_a_file_leaves_others_labels_as_they_are(tmp_path):
    large = (1 << 53) + 1
    pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": pa.array([large, None, 1])}), tmp_path / "a.parquet")
    y = ParquetPopulation(tmp_path, target="y").shard.placed[0].block.read()[1]
    assert y.tolist() == [large, None, 1]


class Odd(Logistic):
    """A loss of one's own, which knows labels of its own."""

    def targets(self, y):
        return super().targets(np.asarray([{"ill": 1, "well": 0}.get(label, 9) for label in y.tolist()]))


def test_a_loss_of_ones_own_says_itself_which_targets_it_takes():
    X, y = people()
    labels = np.where(y > 0, "ill", "well").astype(object)
    labels[[5, 700]] = "neither", None
    own = Problem(loss=Odd(), domain=BALL)
    vectors = Gradients(own, np.ones(3), blank=True)(X, labels)
    np.testing.assert_array_equal(vectors, PROBLEM.gradients(np.ones(3), *with_zeros((5, 700))))


def test_a_gradient_of_ones_own_that_is_not_finite_is_a_blank():
    def gradient(theta, X, y):
        with np.errstate(divide="ignore"):
            return np.where(X == 0.25, np.nan, X)

    own = CustomProblem(gradient, BALL, lipschitz=2.0)
    X, _ = people()
    X[3, 0] = 0.25
    X[4, 0] = np.inf
    vectors = Gradients(own, np.zeros(3), blank=True)(X, None)
    assert not vectors[[3, 4]].any()
    np.testing.assert_array_equal(np.delete(vectors, [3, 4], axis=0), np.delete(X, [3, 4], axis=0))


def test_values_are_numbers_one_by_one():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    np.testing.assert_array_equal(numbers_or_nan(masked), [1.0, np.nan])
    np.testing.assert_array_equal(numbers_or_nan([1, "2.5", "x", None, True, 10**400]), [1.0, 2.5, np.nan, np.nan, 1.0, np.nan])


@pytest.mark.parametrize("odd", [(), (0,), (6,), (2, 3), range(7)])
def test_odd_entries_are_found_by_halves(odd):
    def takes(some):
        if set(range(some.start, some.stop)) & set(odd):
            raise ValueError

    assert np.flatnonzero(~taken(takes, 7)).tolist() == list(odd)


@pytest.mark.parametrize("record", [([np.nan, 0.0, 0.0], 1), ([0.1, 0.2, "x"], 1), ([0.1, 0.2, 0.3], 7), ([0.1, 0.2, 0.3], "x")])
def test_a_stream_takes_a_blank_where_it_would_refuse(record):
    streams = [cr.PanPrivate(PROBLEM, users=200, epsilon=1.0, delta=1e-6, seed=1, invalid="blank") for _ in range(2)]
    for stream, one in zip(streams, (record, ([0.0, 0.0, 0.0], 1)), strict=True):
        stream.feed(*one)
    np.testing.assert_array_equal(streams[0].state.counts, streams[1].state.counts)
    assert streams[0].state.taken == 1
    with pytest.raises(ValueError, match=r"not allowed|could not convert"):
        cr.PanPrivate(PROBLEM, users=200, epsilon=1.0, delta=1e-6, seed=1).feed(*record)
