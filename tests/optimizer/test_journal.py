"""Runs that are cut off anywhere go on to the very same result, ask nobody twice with different noise, and keep no secret."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import croupier as cr
from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression
from croupier.optimizer import StopTraining, replay
from croupier.optimizer._gradients import RowMoments
from croupier.optimizer._journal import VERSION, Journal
from croupier.optimizer.training import FinishedRunWarning, prepared, run
from croupier.population import ArrayPopulation
from croupier.privacy._ledger import BudgetExceededError
from croupier.problem import Ball, CappedLogistic, Logistic, Problem
from croupier.protocol.randomness import Secret

pytestmark = pytest.mark.filterwarnings("ignore::croupier.optimizer.training.FinishedRunWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2)) / 3
Y = (X[:, 0] + RNG.logistic(size=300) / 4 > 0).astype(float)
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
CASES = {
    "sequential": (Problem(Logistic(), Ball(dim=2, radius=3.0)), {"rounds": 4}),
    "full": (Problem(Logistic(), Ball(dim=2, radius=3.0)), {"rounds": 4, "interactivity": "full"}),
    "phased": (Problem(Logistic(), Ball(dim=2, radius=3.0), l2=1.0), {"method": "phased"}),
}
HERE = Problem(Logistic(), Ball(dim=2, radius=3.0))


class Killed(BaseException):
    """The end of a process, as far as one can be had without ending it."""


class Watched(ArrayPopulation):
    """Remembers under which key each round was asked, and what came back; dies before it answers round `dies`."""

    def __init__(self, X=X, y=Y, *, dies=None):
        super().__init__(X, y)
        self.dies, self.asked = dies, []

    def answer(self, question):
        if len(self.asked) + 1 == self.dies:
            raise Killed
        estimate = super().answer(question)
        about = (question.batch.first, question.query.theta.tobytes())
        self.asked.append((about, question.secret.key, estimate.sum.tobytes()))
        return estimate


class Silent(ArrayPopulation):
    def answer(self, question):
        raise AssertionError("a user was asked")


def start(case, path, population, **changes):
    problem, options = CASES[case]
    return cr.minimize(problem, population, **BUDGET | options | changes, checkpoint=path)


def stop(done):
    raise StopTraining


def begun(case, path, **changes):
    """The file of a run that has a secret, and has asked nobody yet."""
    start(case, path, Watched(), callbacks=stop, **changes)
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    return path


def copied(path, name):
    return shutil.copy(path, path.with_name(name))


def seen(result):
    """All that a run releases, to the last bit."""
    rounds = [(r.index, r.phase, r.users, r.theta.tobytes(), r.gradient.tobytes()) for r in result.history]
    return result.theta.tobytes(), rounds, result.guarantee, result.seed, result.stopped


@pytest.fixture(params=CASES)
def case(request):
    return request.param


# --- cut off, and gone on with


@pytest.mark.parametrize("how", ["in a callback", "before the answer", "before the answer is written"])
def test_a_run_that_dies_in_every_round_ends_like_one_that_never_died(tmp_path, monkeypatch, case, how):
    path = begun(case, tmp_path / "run")
    undisturbed = Watched()
    expected = start(case, copied(path, "reference"), undisturbed)
    assert expected.private
    assert len(undisturbed.asked) == expected.rounds == expected.schedule.rounds > 3

    asked, write = [], Journal.answer
    for index in range(1, expected.rounds + 1):
        # what is known is not asked again: the round before this one is the first that is asked
        population = Watched(dies=min(index, 2) if how == "before the answer" else None)

        def die(done, index=index):
            if done.index == index:
                raise Killed

        def unwritten(journal, done, private, die=die):
            die(done)
            write(journal, done, private)

        with monkeypatch.context() as patch:
            if how == "before the answer is written":
                patch.setattr(Journal, "answer", unwritten)
            with pytest.raises(Killed) as caught:
                start(case, path, population, callbacks=die if how == "in a callback" else ())
        assert any("can resume" in note for note in caught.value.__notes__)
        asked += population.asked
    last = Watched()
    found = start(case, path, last)
    asked += last.asked
    assert seen(found) == seen(expected)
    # Every round under one key, with one answer, the same as in the run that never died.
    assert set(asked) == set(undisturbed.asked)
    assert len({key for _, key, _ in asked}) == expected.rounds
    assert len(asked) == (2 * expected.rounds if how == "before the answer is written" else expected.rounds)


def test_callbacks_see_the_rounds_of_the_earlier_process_too(tmp_path, case):
    path = tmp_path / "run"
    first = start(case, path, Watched(), callbacks=lambda done: stop(done) if done.index == 2 else None)
    told = []
    result = start(case, path, Watched(), callbacks=told.append)
    assert [done.index for done in told] == list(range(1, result.rounds + 1))
    assert (first.rounds, first.stopped, result.stopped) == (2, True, False)
    assert seen(first)[1] == seen(result)[1][:2]


DRIVER = """
import os, signal, sys
import numpy as np
import croupier as cr
from croupier.optimizer._journal import Journal
from croupier.population import ArrayPopulation
from croupier.problem import Ball, Logistic, Problem

path, data, point, index = *sys.argv[1:4], int(sys.argv[4])
asked = 0

def die():
    print("dies", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

class Mortal(ArrayPopulation):
    def answer(self, question):
        global asked
        asked += 1
        if (point, index) == ("before", asked):
            die()
        estimate = super().answer(question)
        if (point, index) == ("after", asked):
            die()
        return estimate

def told(done):
    if (point, index) == ("told", done.index):
        die()

if point == "end":
    os.fsync = lambda file, sync=os.fsync: die() if Journal.ending else sync(file)
    Journal.ending, finish = False, Journal.finish
    def ending(journal):
        Journal.ending = True
        finish(journal)
    Journal.finish = ending
loaded = np.load(data)
problem = Problem(Logistic(), Ball(dim=2, radius=3.0))
population = Mortal(loaded["X"], loaded["y"])
cr.minimize(problem, population, epsilon=4.0, delta=1e-6, rounds=4, callbacks=told, checkpoint=path)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system kills in other ways")
@pytest.mark.parametrize(("point", "index", "answered"), [("before", 1, 0), ("after", 3, 2), ("told", 4, 4), ("end", 0, 4)])
@pytest.mark.process
def test_a_process_that_is_killed_leaves_a_run_that_another_ends(tmp_path, point, index, answered):
    path, data = begun("sequential", tmp_path / "run"), tmp_path / "data.npz"
    np.savez(data, X=X, y=Y)
    undisturbed = Watched()
    expected = start("sequential", copied(path, "reference"), undisturbed)
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, path, data, point, str(index)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "dies\n"), killed.stderr
    population = Watched()
    assert seen(start("sequential", path, population)) == seen(expected)
    assert population.asked == undisturbed.asked[answered:]
    left = [file for file in tmp_path.iterdir() if file.name.startswith(".run")]
    assert len(left) == (point == "end")
    assert not any(begun_with_secret(file) for file in left)


def begun_with_secret(file):
    return bool(json.loads(file.read_text().split("\n")[0])["secret"])


# --- files that were cut off, or changed


class Small:
    """A run in one dimension from a point whose every bit matters, whose file is short enough to be cut off everywhere."""

    problem = Problem(Logistic(), Ball(dim=1, radius=3.0))
    chosen = cr.schedule(problem, 60, epsilon=8.0, delta=1e-6, rounds=3)

    @classmethod
    def run(cls, path, population=None, **options):
        return run(
            cls.problem, population or Watched(X[:60, :1], Y[:60]), cls.chosen, start=np.full(1, 0.5), checkpoint=path, **options
        )

    @classmethod
    def cut_off(cls, path):
        """The file of a run that died when all rounds were answered, and what it would have come to."""

        def die(done):
            if done.index == 3:
                raise Killed

        with pytest.raises(Killed):
            cls.run(path, callbacks=die)
        content, population = path.read_bytes(), Watched(X[:60, :1], Y[:60])
        path.write_bytes(content.split(b"\n")[0] + b"\n")
        expected = cls.run(path, population)
        path.write_bytes(content)
        return content, seen(expected), population.asked


def test_a_file_that_ends_anywhere_in_its_last_two_lines_leads_to_the_same_result(tmp_path, monkeypatch):
    path = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", lambda file: None)  # some hundred runs; power does not fail here
    content, expected, asked = Small.cut_off(path)
    lines = content.splitlines(keepends=True)
    assert [next(iter(json.loads(line))) for line in lines] == ["format", "records"] + ["ask", "answer"] * 3
    for end in range(len(content) - len(lines[-1]) - len(lines[-2]), len(content) + 1):
        path.write_bytes(content[:end])
        population = Watched(X[:60, :1], Y[:60])
        assert seen(Small.run(path, population)) == expected
        assert population.asked == ([] if end == len(content) else asked[2:])


def test_a_file_whose_first_line_was_cut_off_asked_nobody_and_begins_anew(tmp_path):
    path = tmp_path / "run"
    content, _, asked = Small.cut_off(path)
    first = content.splitlines()[0]
    for end in (0, 1, len(first) // 2, len(first)):
        path.write_bytes(first[:end])
        population = Watched(X[:60, :1], Y[:60])
        result = Small.run(path, population)
        assert (result.rounds, result.private) == (3, True)
        assert not {key for _, key, _ in population.asked} & {key for _, key, _ in asked}


def edited(number, edit):
    def change(lines):
        lines[number] = edit(lines[number])

    return change


def with_another_gradient(line):
    entry = json.loads(line)
    entry["answer"]["gradient"][0] += 1e-3
    return json.dumps(entry).encode()


@pytest.mark.parametrize(
    "damage",
    [
        edited(3, lambda line: line[:-5]),
        edited(3, lambda line: b"\xff" + line[1:]),
        edited(4, lambda line: b""),
        edited(4, lambda line: b"{}"),
        edited(4, lambda line: b"[1, 2]"),
        edited(4, lambda line: b'"ask"'),
        edited(3, lambda line: line.replace(b'"gradient"', b'"grodient"')),
        edited(3, with_another_gradient),
        edited(0, lambda line: line.replace(b"croupier journal", b"croupier run")),
        edited(0, lambda line: b"[]"),
        edited(0, lambda line: b"a,b,c"),
        lambda lines: lines.pop(3),
    ],
    ids=[
        "torn",
        "bytes",
        "empty",
        "nothing",
        "list",
        "text",
        "renamed",
        "changed",
        "format",
        "header",
        "foreign",
        "removed",
    ],
)
def test_a_file_that_is_damaged_in_the_middle_is_refused(tmp_path, damage):
    path = tmp_path / "run"
    content, _, _ = Small.cut_off(path)
    lines = content.split(b"\n")
    damage(lines)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(cr.ArgumentError, match=re.escape(str(path))):
        Small.run(path, Silent(X[:60, :1], Y[:60]))


def test_a_run_of_another_version_is_refused_by_its_number_and_left_as_it_is(tmp_path):
    """It may draw other noise from the same secret."""
    path = tmp_path / "run"
    content = Small.cut_off(path)[0].replace(b'"version": %d' % VERSION, b'"version": 1')
    path.write_bytes(content)
    with pytest.raises(cr.ArgumentError, match=f"is of version 1; it must be .* version {VERSION}. A run can be resumed only by"):
        Small.run(path, Silent(X[:60, :1], Y[:60]))
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b'{"model": "precious"}', b"a,b\n1,2\n3,4", b'{"format": "croupier journal", "ver'])
def test_a_file_that_is_no_run_is_left_alone(tmp_path, content):
    """Only what a run wrote may be cut off; a run's own first line, torn, is no loss."""
    path = tmp_path / "precious"
    path.write_bytes(content)
    if content.startswith(b'{"format": "croupier journal"'):
        assert Small.run(path).rounds == 3
        return
    with pytest.raises(cr.ArgumentError, match="precious"):
        Small.run(path, Silent(X[:60, :1], Y[:60]))
    assert path.read_bytes() == content


def test_a_round_is_asked_again_about_the_point_in_the_file_to_its_last_bit(tmp_path):
    """Another machine may compute another last bit: under the same noise the difference of two sums would show."""
    path = tmp_path / "run"
    with pytest.raises(Killed):
        Small.run(path, Watched(X[:60, :1], Y[:60], dies=2))
    *lines, asked = path.read_text().splitlines()
    theta = json.loads(asked)["theta"][0]
    for factor, taken in ((1 + 2**-52, True), (1 - 2**-50, True), (1.001, False)):
        path.write_text("\n".join([*lines, json.dumps({"ask": 2, "theta": [theta * factor]})]) + "\n")
        again = Watched(X[:60, :1], Y[:60], dies=2)
        if taken:
            with pytest.raises(Killed):
                Small.run(copied(path, f"run {factor}"), again)
            assert again.asked[0][0][1] == np.array([theta * factor]).tobytes() != np.array([theta]).tobytes()
        else:
            with pytest.raises(cr.ArgumentError, match="other points"):
                Small.run(path, Silent(X[:60, :1], Y[:60]))


# Ten rounds, of which two find coordinates: descent has eight, the last six of which count people by their odds.
ROWS = np.column_stack([X, np.ones(len(X))])
FOUND = Problem(CappedLogistic(), Ball(dim=3, radius=10.0), feature_norm=2.0, constant=1.0)


class Seeing(ArrayPopulation):
    """Remembers all of each question, and what came back; dies when round `dies` is answered, before anybody hears of it."""

    def __init__(self, *, dies=None):
        super().__init__(ROWS, Y)
        self.dies, self.asked = dies, []

    def answer(self, question):
        estimate, query = super().answer(question), question.query
        seen = (query.theta.tobytes(), query.objective.coordinates.digest) if question.number > 2 else None
        self.asked.append((question.number, seen, question.secret.key, estimate.sum.tobytes()))
        if question.number == self.dies:
            raise Killed
        return estimate


def in_coordinates(path, population, **options):
    planned = cr.schedule(FOUND, 300, epsilon=50.0, delta=1e-6, rule="whitened", rounds=10)
    opening, descent = planned.phases
    assert (opening.rounds, descent.rounds) == (2, 8)
    chosen = replace(planned, phases=(opening, replace(descent, focus=0.5)))
    return run(FOUND, population, chosen, start=np.zeros(3), checkpoint=path, **options)


def nudge(patch, by=None):
    """Another processor, whose linear algebra rounds an entry of the coordinates otherwise."""
    found = RowMoments.found

    def nudged(*arguments):
        view = found(*arguments)
        turn = np.array(view.coordinates.turn, dtype=np.float32)
        turn[0, 1] = np.nextafter(turn[0, 1], np.float32(9)) if by is None else turn[0, 1] + np.float32(by)
        return replace(view, coordinates=replace(view.coordinates, turn=turn))

    patch.setattr(RowMoments, "found", nudged)


@pytest.mark.parametrize("dies", [3, 4, 5, 6, 10])
def test_a_round_is_asked_again_in_the_coordinates_in_the_file_to_their_last_bit(tmp_path, monkeypatch, dies):
    path, first, here, there = tmp_path / "run", Seeing(dies=dies), Seeing(), Seeing()
    with pytest.raises(Killed):
        in_coordinates(path, first)
    expected = in_coordinates(copied(path, "here"), here)
    with monkeypatch.context() as patch:
        nudge(patch)
        result = in_coordinates(path, there, callbacks=lambda done: stop(done) if done.index == 10 else None)
        assert np.allclose(replay(FOUND, result), result.theta, rtol=1e-6)
    assert there.asked[0] == here.asked[0] == first.asked[-1]
    assert first.asked[-1][0] == dies
    # all of a phase, whoever computes them, but for the focus
    assert len({digest for _, (_, digest), *_ in [*first.asked[2:], *here.asked, *there.asked]}) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["ask"] for line in lines if "coordinates" in line] == [3, 5]
    assert result.history[dies - 1].theta.tobytes() == expected.history[dies - 1].theta.tobytes()
    if dies == 10:
        assert np.allclose(result.theta, expected.theta, rtol=1e-6)
    assert in_coordinates(path, Seeing()).rounds == 10  # and back on the first processor


def test_a_round_that_was_asked_in_other_coordinates_is_not_asked_again(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.raises(Killed):
        in_coordinates(path, Seeing(dies=3))
    nudge(monkeypatch, by=0.01)
    people = Seeing()
    with pytest.raises(cr.ArgumentError, match="other points"):
        in_coordinates(path, people)
    assert people.asked == []


def test_a_disk_that_is_full_ends_the_run_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run"
    content, expected, _ = Small.cut_off(path)
    path.write_bytes(content.split(b"\n")[0] + b"\n")
    write = os.write
    for _ in range(6):  # every time one line more, and half of the next; the seventh is the last
        wrote = []

        def fill(file, text, wrote=wrote):
            wrote.append(text)
            return write(file, text if len(wrote) == 1 else text[: len(text) // 2])

        monkeypatch.setattr(os, "write", fill)
        with pytest.raises(OSError, match="could not be written completely"):
            Small.run(path)
        assert len(wrote) == 2
    monkeypatch.setattr(os, "write", write)
    assert seen(Small.run(path)) == expected


# --- another run than the one that was begun


def one_bit_off(array):
    changed = array.copy()
    changed.reshape(-1).view(np.uint8)[80] ^= 1
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 3.0}, "another (epsilon|schedule)"),
        ({"rounds": 5}, "another (rounds|schedule)"),
        ({"seed": 1}, "another seed"),
        ({"start": [0.1, 0.0]}, "another start"),
        ({"problem": Problem(Logistic(), Ball(dim=2, radius=3.0), feature_norm=0.5)}, "another problem"),
        ({"data": (X[:-1], Y[:-1])}, "another (number of )?users"),
        ({"data": (one_bit_off(X), Y)}, "data has changed"),
        ({"data": (X, np.where(np.arange(300) == 299, 1 - Y, Y))}, "data has changed"),
        ({"data": (X[::-1], Y[::-1])}, "data has changed"),
        ({"data": (X.astype(np.float32), Y)}, "data has changed"),
    ],
    ids=["epsilon", "rounds", "seed", "start", "problem", "users", "X", "y", "order", "type"],
)
def test_another_request_is_refused_and_says_what_differs_before_anyone_is_asked(tmp_path, change, words):
    path = tmp_path / "run"
    start("sequential", path, Watched(), callbacks=stop)
    before = path.read_bytes()
    problem, data = change.pop("problem", HERE), change.pop("data", (X, Y))
    with pytest.raises(cr.ArgumentError, match=words):
        cr.minimize(problem, Silent(*data), **{**BUDGET, "rounds": 4} | change, checkpoint=path)
    assert path.read_bytes() == before


def test_a_loss_of_ones_own_that_is_another_now_is_refused(tmp_path):
    """The rounds in the file lead to the same points whatever the loss: only the loss itself can tell."""
    own, other = (
        cr.CustomProblem(gradient, Ball(dim=2, radius=1.0), lipschitz=2.0, smoothness=1.0)
        for gradient in (lambda theta, X, y: theta - X, lambda theta, X, y: theta - X * y[:, np.newaxis])
    )
    with pytest.raises(Killed):
        cr.minimize(own, Watched(dies=2), **BUDGET, rounds=4, checkpoint=tmp_path / "run")
    with pytest.raises(cr.ArgumentError, match="another problem"):
        cr.minimize(other, Silent(X, Y), **BUDGET, rounds=4, checkpoint=copied(tmp_path / "run", "other"))
    assert cr.minimize(own, Watched(), **BUDGET, rounds=4, checkpoint=tmp_path / "run").rounds == 4


def test_a_refused_request_does_not_keep_the_right_one_out(tmp_path):
    path = tmp_path / "run"
    start("sequential", path, Watched(), callbacks=stop)
    with pytest.raises(cr.ArgumentError, match="another"):
        start("sequential", path, Silent(X, Y), rounds=3)
    assert start("sequential", path, Watched()).rounds == 4


def test_a_finished_run_refuses_another_request_too(tmp_path):
    path = tmp_path / "run"
    start("sequential", path, Watched())
    with pytest.raises(cr.ArgumentError, match="another"):
        start("sequential", path, Silent(X, Y), epsilon=3.0)


@pytest.mark.parametrize("path", [".", "nowhere/run"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path, path):
    with pytest.raises(cr.ArgumentError, match="a file that can be written"):
        start("sequential", tmp_path / path, Silent(X, Y))


# --- the secret


def hidden(key, content):
    return not any(form in content for form in (key, key.hex().encode(), key.hex().upper().encode()))


def test_the_secret_is_its_owners_alone_and_gone_when_the_run_has_ended(tmp_path, case):
    path, kept = tmp_path / "run", []

    def look(done):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        kept.append(json.loads(path.read_text().split("\n")[0])["secret"])

    mask = os.umask(0)
    try:
        result = start(case, path, Watched(), callbacks=look)
    finally:
        os.umask(mask)
    assert len(set(kept)) == 1
    assert len(kept) == result.rounds
    key = bytes.fromhex(kept[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert hidden(key, path.read_bytes())
    assert hidden(Secret(key, private=True).derive("records").key, path.read_bytes())
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert hidden(key, result.to_json().encode())


def test_a_file_that_others_may_read_does_not_get_the_secret(tmp_path):
    path = tmp_path / "run"
    path.touch()
    path.chmod(0o644)
    modes = []
    try:
        Small.run(path, callbacks=lambda done: modes.append(stat.S_IMODE(path.stat().st_mode)))
    except cr.ArgumentError:
        assert path.read_bytes() == b""
    assert set(modes) <= {0o600}


def test_the_secret_is_gone_from_a_file_that_was_reached_by_a_link(tmp_path):
    path, link, kept = tmp_path / "run", tmp_path / "link", []
    link.symlink_to(path)
    Small.run(link, callbacks=lambda done: kept.append(json.loads(path.read_text().split("\n")[0])["secret"]))
    assert len(kept) == 3
    assert hidden(bytes.fromhex(kept[0]), path.read_bytes())


def test_a_finished_run_gives_its_result_again_and_asks_nobody(tmp_path, case):
    path = tmp_path / "run"
    first = start(case, path, Watched())
    content = path.read_bytes()
    told = []
    again = start(case, path, Silent(X, Y), callbacks=told.append)
    assert seen(again) == seen(first)
    assert again.guarantee.delta(BUDGET["epsilon"]) <= BUDGET["delta"]
    assert len(told) == first.rounds
    assert path.read_bytes() == content


def test_a_finished_run_that_lost_a_round_cannot_ask_for_it(tmp_path):
    path = tmp_path / "run"
    start("sequential", path, Watched())
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2] + lines[-1:]))
    with pytest.raises(ValueError, match="secret is gone"):
        start("sequential", path, Silent(X, Y))


def test_two_runs_at_once_cannot_have_one_file(tmp_path):
    path, refused = tmp_path / "run", []

    def second(done):
        with pytest.raises(cr.ArgumentError, match="no other run has open"):
            start("sequential", path, Silent(X, Y))
        refused.append(done.index)

    result = start("sequential", begun("sequential", path), Watched(), callbacks=second)
    assert refused == [1, 2, 3, 4]
    assert result.rounds == 4
    assert start("sequential", path, Silent(X, Y)).rounds == 4


# --- noise belongs to the point that is asked about


def test_another_point_is_asked_about_under_another_secret():
    def keys(population, **changes):
        cr.minimize(HERE, population, **BUDGET, rounds=3, seed=1, **changes)
        return [key for _, key, _ in population.asked]

    same, again, elsewhere, others = keys(Watched()), keys(Watched()), keys(Watched(), start=[1e-9, 0.0]), keys(Watched(-X, Y))
    assert same == again
    assert len({*same, *elsewhere}) == 6
    assert same[0] == others[0]  # the same point
    assert len({*same, *others}) == 5  # and what follows from other answers


def test_the_secret_of_a_round_is_derived_from_all_that_it_asks():
    asked = []

    class Told(ArrayPopulation):
        def answer(self, question):
            asked.append(question)
            return super().answer(question)

    result = cr.minimize(HERE, Told(X, Y), **BUDGET, rounds=3, seed=5)
    for done, question in zip(result.history, asked, strict=True):
        batch = question.batch
        labels = ("round", done.index, done.theta.tobytes(), batch.first, batch.last, result.schedule.phases[0].plan.to_json())
        assert question.secret == Secret.of_seed(5).derive(*labels)


def test_a_full_run_draws_anew_in_every_round():
    """All rounds ask the same people, and with no step to make even about the same point."""
    population = Watched(np.zeros((300, 2)), Y)
    cr.minimize(HERE, population, **BUDGET, rounds=3, interactivity="full", seed=1)
    assert len({key for _, key, _ in population.asked}) == len({answer for *_, answer in population.asked}) == 3


# --- seeds


@pytest.mark.parametrize("seed", [3, np.int64(3)], ids=["int", "numpy"])
def test_a_seeded_run_goes_on_like_one_without_a_file_and_is_not_private(tmp_path, case, seed):
    path = tmp_path / "run"
    expected = start(case, None, Watched(), seed=3)
    start(case, path, Watched(), seed=seed, callbacks=stop)
    result = start(case, path, Watched(), seed=seed)
    assert seen(result) == seen(expected)
    assert not result.private
    assert not start(case, path, Silent(X, Y), seed=seed).private


# --- accounts


def model(account, *callbacks, **changes):
    return ShuffleLogisticRegression(
        **{"classes": [0, 1], "epsilon": 2.0, "rounds": 4} | changes, account=account, callbacks=callbacks
    )


def die_at(index):
    def callback(done):
        if done.index == index:
            raise Killed

    return callback


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_an_account_is_charged_once_for_a_fit_that_is_cut_off_and_goes_on(tmp_path, kind):
    """The limit has room for one such fit, so a second charge would be refused."""
    where = None if kind == "memory" else tmp_path / "account"
    account, path = PrivacyAccount(where, epsilon=2.5, delta=1e-6), tmp_path / "run"
    for index in (1, 2, 4):
        with pytest.raises(Killed):
            model(account, die_at(index)).fit(X, Y, checkpoint=path)
        assert len(account.fits) == 1
    account = PrivacyAccount(where, epsilon=2.5, delta=1e-6) if where else account
    fitted = model(account).fit(X, Y, checkpoint=path)
    again = model(account).fit(X, Y, checkpoint=path)
    np.testing.assert_array_equal(fitted.coef_, again.coef_)
    assert [(fit.users, fit.guarantee) for fit in account.fits] == [(300, fitted.guarantee_)]
    assert 2.0 < account.spent() < 2.12  # one fit of epsilon 2, and 5 to 6 % for holding whenever one stops
    with pytest.raises(BudgetExceededError):
        model(account).fit(X, Y)
    with pytest.raises(BudgetExceededError):
        model(account).fit(X, Y, checkpoint=tmp_path / "another run")


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")
def test_a_fit_that_was_killed_while_it_was_weighed_is_still_refused(tmp_path, monkeypatch):
    """It is written down first and then found too much: whoever dies between the two must not go on without an answer."""
    account, path = PrivacyAccount(tmp_path / "account", epsilon=2.5, delta=1e-6), tmp_path / "run"
    model(account).fit(X, Y)

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyAccount, "_refuse_beyond", die)
        with pytest.raises(Killed):
            model(account).fit(X, Y, checkpoint=path)
    with pytest.raises(BudgetExceededError):
        model(account).fit(X, Y, checkpoint=path)


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")
def test_fits_with_one_seed_are_fits_of_their_own():
    account = PrivacyAccount()
    for epsilon in (1.0, 2.0):
        model(account, epsilon=epsilon, random_state=1).fit(X, Y)
    assert len(account.fits) == 2


def test_a_run_that_was_cut_off_before_it_asked_was_paid_for_and_is_not_again(tmp_path):
    paid = []
    for dies in (1, None):
        population = Watched(X[:60, :1], Y[:60], dies=dies)
        try:
            with prepared(Small.problem, population, Small.chosen, start=np.zeros(1), checkpoint=tmp_path / "run") as ready:
                assert population.asked == []
                paid.append(ready.name)
                result = ready.result()
        except Killed:
            assert population.asked == []
    assert result.rounds == 3
    assert len(paid) == 2
    assert len(set(paid)) == 1


def test_records_are_looked_at_before_anything_is_paid(tmp_path):
    paid = []
    options = {"start": np.zeros(1), "checkpoint": tmp_path / "run"}

    def pay_and_run(population):
        with prepared(Small.problem, population, Small.chosen, **options) as ready:
            paid.append(ready.name)
            ready.result()

    with pytest.raises(Killed):
        pay_and_run(Watched(X[:60, :1], Y[:60], dies=2))
    with pytest.raises(cr.ArgumentError, match="data has changed"):
        pay_and_run(Silent(X[1:61, :1], Y[:60]))
    assert len(paid) == 1


def test_every_run_without_a_seed_has_a_name_of_its_own():
    names = defaultdict(int)
    for _ in range(5):
        with Journal(None, {}, None) as journal:
            names[journal.run] += 1
            assert journal.secret.key.hex() not in journal.run
    assert len(names) == 5


# --- what a hostile reader tried


def test_a_finished_run_says_that_it_asks_nobody(tmp_path):
    path = begun("sequential", tmp_path / "run")
    start("sequential", path, Watched())
    with pytest.warns(FinishedRunWarning, match="has ended"):
        start("sequential", path, Silent(X, Y))


def test_a_run_that_a_record_ended_stays_uncovered_when_it_is_stopped_later(tmp_path):
    """The failure is part of what was seen; going on to the end is not."""
    path = tmp_path / "run"

    class Failing(Watched):
        def answer(self, question):
            if self.asked:
                raise ValueError("a record")
            return super().answer(question)

    with pytest.raises(ValueError, match="a record") as caught:
        start("sequential", path, Failing())
    assert caught.value.result.guarantee is None
    again = start("sequential", path, Watched(), callbacks=stop)
    assert (again.rounds, again.guarantee) == (1, None)
    assert start("sequential", path, Watched()).guarantee is not None


def test_only_plain_files_of_ones_own_are_taken(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(cr.ArgumentError, match="a plain file that you own"):
        start("sequential", tmp_path / "pipe", Silent(X, Y))
    os.close(reader)
    if os.geteuid() == 0:
        (tmp_path / "theirs").touch()
        os.chown(tmp_path / "theirs", 65534, -1)
        with pytest.raises(cr.ArgumentError, match="a plain file that you own"):
            start("sequential", tmp_path / "theirs", Silent(X, Y))


def test_text_that_is_no_run_is_left_alone_and_not_taken_for_a_spent_one(tmp_path):
    (tmp_path / "notes").write_text("dear diary\nsecond line\n")
    with pytest.raises(cr.ArgumentError, match="left as it is"):
        start("sequential", tmp_path / "notes", Silent(X, Y))
    assert (tmp_path / "notes").read_text() == "dear diary\nsecond line\n"


@pytest.mark.parametrize("seed", [1.7, "3", True, -1])
def test_seeds_that_are_no_whole_numbers_are_refused(seed):
    with pytest.raises(cr.ArgumentError, match="seed"):
        cr.minimize(*CASES["sequential"][:1], Silent(X, Y), **BUDGET, seed=seed)


def test_an_end_that_cannot_be_written_loses_nothing(tmp_path, monkeypatch):
    path = begun("sequential", tmp_path / "run")

    def full(*_):
        raise OSError("no room")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no room") as caught:
        start("sequential", path, Watched())
    assert caught.value.result.rounds == 4
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    monkeypatch.undo()
    assert start("sequential", path, Silent(X, Y)).rounds == 4
    assert not begun_with_secret(path)
