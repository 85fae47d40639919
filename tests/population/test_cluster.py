"""Users on a Ray cluster: the same bits as on one machine, whatever is killed, and nothing left behind.

One local Ray of two workers serves the tests that need no Ray of their own.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from pyarrow import parquet as pq
from sklearn.base import clone

import croupier as cr
from croupier.estimator import ShuffleLinearRegression, ShuffleLogisticRegression, ShuffleLogit, ShuffleRidge
from croupier.population import ArrayPopulation, ParquetPopulation, RayPopulation, WorkerError
from croupier.population._blocks import BlockPopulation
from croupier.population.cluster import TOKEN
from croupier.population.population import Batch, Question, UnreachableError, deal
from croupier.problem import Ball, Logistic, Problem
from croupier.protocol import Counts
from croupier.protocol.randomness import Secret
from croupier.table import Schema
from croupier.table._encode import Encoder
from croupier.table._population import TableBlock

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("ray")]

SIZES = [1000, 2000, 300, 700]  # on two workers: the second block on one, the others on the other
USERS = sum(SIZES)
BALL = Ball(dim=3, radius=5.0)
PROBLEM = Problem(loss=Logistic(), domain=BALL)
REQUEST = {"epsilon": 2.0, "delta": 1e-6, "rounds": 6, "rule": "practical"}
REPOSITORY = Path(__file__).parents[2]


def people(users=USERS, seed=0):
    X = np.random.default_rng(seed).normal(size=(users, 3)) / 3
    return X, X[:, 0] > 0.1


def in_memory(seed=0):
    return ArrayPopulation(*people(seed=seed), blocks=SIZES)


def rows(X, y):
    return X


def question(query=rows, users=USERS, size=None, seed=5):
    """The sum of the rows of everybody, or of so many people, under a seed."""
    batch = Batch.everyone(users) if size is None else deal(Secret.of_seed(seed), users, [size])[0]
    plan = cr.plan_sum(epsilon=2.0, delta=1e-6, users=batch.size, dim=3)
    return Question(query, batch, plan, Secret.of_seed(seed).derive("question"))


def same_answers(population, other, asked):
    np.testing.assert_array_equal(population.answer(asked).sum, other.answer(asked).sum)


def write(path, X, y, **options):
    pq.write_table(pa.table({"age": X[:, 0], "height": X[:, 1], "weight": X[:, 2], "ill": y}), path, **options)
    return path


@dataclass(frozen=True)
class Fragile(Problem):
    """Logistic regression whose users, once the file `bomb` is there, kill the process that it names, or their own; once."""

    bomb: str = ""

    def gradients(self, theta, X, y):
        defused = f"{self.bomb}.off"
        try:
            os.rename(self.bomb, defused)  # one process alone can
        except FileNotFoundError:
            return super().gradients(theta, X, y)
        os.kill(int(Path(defused).read_text() or os.getpid()), signal.SIGKILL)
        time.sleep(60)
        raise AssertionError("somebody survived")


def run(population, problem=PROBLEM, **options):
    return cr.minimize(problem, population, **REQUEST, **options)


def after(index, act):
    """A callback that acts once, after this round."""
    done = []

    def callback(entry):
        if entry.index == index and not done:
            done.append(act())

    return callback


def interrupt():
    raise KeyboardInterrupt


# --- without a cluster (these come first: nothing is connected yet)


@pytest.fixture
def folder():
    """A folder with a short name, since the names of Unix sockets may have no more than 107 characters."""
    path = Path(tempfile.mkdtemp(prefix="t"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def python(script, folder, **options):
    """Run a script in a fresh process whose home, temporary files and Ray are in the folder."""
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(Path(__file__).parent)])
    mine = {"HOME": folder / "home", "TMPDIR": folder / "tmp", "RAY_TMPDIR": folder / "tmp", "PYTHONPATH": paths}
    environment = kept | {name: str(value) for name, value in mine.items()} | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", f"import sys\nfrom test_cluster import *\n{script}", *map(str, options.values())]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def processes_of(folder):
    """The command lines of running processes that name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(folder) in command:
            found.append(command)
    return found


def wait_until_gone(folder):
    for _ in range(300):
        if not processes_of(folder):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {processes_of(folder)}")


ENDINGS = {
    "closed": "with RayPopulation(in_memory(), workers=2) as population:\n    print(population.answer(question()).sum.tolist())",
    "raised": "population = RayPopulation(in_memory(), workers=2)\nprint(population.answer(question()).sum.tolist())\n1 / 0",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_ray_that_was_started_here_ends_with_the_program_and_leaves_nothing(folder, ending):
    done = python(ENDINGS[ending], folder)
    assert done.returncode == (ending == "raised"), done.stderr
    assert done.stdout.strip() == str(in_memory().answer(question()).sum.tolist())
    wait_until_gone(folder / "tmp")
    assert sorted(folder.rglob("*")) == [folder / "home", folder / "tmp"]
    assert "Started a local Ray" not in done.stderr


def test_a_population_whose_ray_another_one_has_ended_says_so_and_starts_none(folder):
    script = """
first, second = RayPopulation(in_memory(), workers=1), RayPopulation(in_memory(), workers=1)
first.close()
try:
    second.answer(question())
except UnreachableError as error:
    print(ray.is_initialized())
second.close()
"""
    done = python(script, folder)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
    wait_until_gone(folder / "tmp")


def test_an_address_that_is_none_is_refused():
    assert not ray.is_initialized()
    with pytest.raises(cr.ArgumentError, match="address = 'nonsense'"):
        RayPopulation(in_memory(), address="nonsense")


def test_an_address_where_nobody_answers_is_refused():
    """At once: Ray would try for five minutes, and then end the program."""
    with pytest.raises(cr.ArgumentError, match=r"address = '127\.0\.0\.1:1'"):
        RayPopulation(in_memory(), address="127.0.0.1:1")


@pytest.mark.parametrize("workers", [0, 5, 1.5, "two"])
def test_workers_without_a_block_are_refused_before_ray_is_started(workers):
    with pytest.raises(cr.ArgumentError, match="4 blocks"):
        RayPopulation(in_memory(), workers=workers)


@pytest.mark.parametrize("population", [people(), ArrayPopulation(*people(), mode="faithful")], ids=["arrays", "faithful"])
def test_populations_without_counts_of_blocks_are_refused(population):
    with pytest.raises(cr.ArgumentError, match="population of blocks"):
        RayPopulation(population)


# --- one local Ray


@pytest.fixture(scope="module")
def cluster():
    """A local Ray with room for two populations of two workers, which they use since this process is connected to it."""
    assert not ray.is_initialized()
    path = tempfile.mkdtemp(prefix="t")
    os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)  # as RayPopulation does: Ray reads its token once in a process
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=128 << 20,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=path,
        )
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
        yield ray
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    finally:
        ray.shutdown()
        wait_until_gone(path)
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def shared(cluster):
    """The people in memory, on two workers."""
    with RayPopulation(in_memory(), workers=2) as population:
        yield population


@pytest.fixture
def files(tmp_path):
    """The people in a folder, a file a block, with what `in_memory` has."""
    (tmp_path / "people").mkdir()
    X, y = people()
    first = 0
    for number, size in enumerate(SIZES):
        write(tmp_path / "people" / f"{number}.parquet", X[first : first + size], y[first : first + size])
        first += size
    return tmp_path / "people"


@pytest.mark.parametrize("size", [None, 1500])
def test_counts_are_the_same_bits_as_here(shared, size):
    assert shared.workers == 2
    same_answers(shared, in_memory(), question(size=size))


@pytest.mark.parametrize(
    "options",
    [{}, {"interactivity": "full"}, {"rule": "bound", "rounds": None}, {"method": "acsa"}],
    ids=["sequential", "full", "phased", "accelerated"],
)
def test_a_run_is_bit_for_bit_that_of_one_process(shared, options):
    problem = Problem(loss=Logistic(), domain=BALL, l2=0.5)
    runs = [cr.minimize(problem, some, **(REQUEST | options), seed=2) for some in (shared, in_memory())]
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)
    assert (len(runs[0].schedule.phases) > 1) == (options.get("rule") == "bound")
    assert [entry.gradient.tolist() for entry in runs[0].history] == [entry.gradient.tolist() for entry in runs[1].history]


@pytest.mark.parametrize(
    "model",
    [
        ShuffleLogit(classes=[False, True], method="moments"),
        ShuffleLinearRegression(target_range=(0, 1), method="moments"),
        ShuffleRidge(target_range=(0, 1), method="moments"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_without_rounds_are_bit_for_bit_those_of_one_process(cluster, files, model):
    """Parquet on a worker, and streamed here, beside the same people in memory."""
    model = model.set_params(epsilon=4.0, random_state=5)
    here = clone(model).fit_population(ArrayPopulation(*model.records(*people()), blocks=SIZES), features=3)
    streamed = ParquetPopulation(files, target="ill", records=model.records)
    with RayPopulation(streamed, workers=1) as there:
        for population in (streamed, there):
            again = clone(model).fit_population(population, features=3)
            np.testing.assert_array_equal(again.coef_, here.coef_)
            np.testing.assert_array_equal(again.intercept_, here.intercept_)
    assert getattr(here, "method_", "moments") == "moments"


def test_a_run_begun_here_goes_on_there_with_the_same_secret(shared, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(in_memory(), checkpoint=tmp_path / "run", callbacks=after(2, interrupt))
    shutil.copy(tmp_path / "run", tmp_path / "copy")
    there = run(shared, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(there.theta, run(in_memory(), checkpoint=tmp_path / "copy").theta)
    assert there.private


def test_what_leaves_a_worker_is_one_integer_a_coordinate_and_how_many_they_are(shared, monkeypatch):
    """However many users are asked, replies are as long; to a question about the records, a digest of 32 bytes a block."""
    replies, really = {}, RayPopulation._all

    def all_of_them(population, method, arguments):
        replies.setdefault(method, []).append(really(population, method, arguments))
        return replies[method][-1]

    monkeypatch.setattr(RayPopulation, "_all", all_of_them)
    shared.prepare(accept, bytes(32))
    for size in (200, 3900):
        shared.answer(question(size=size))
    for few, many in zip(*replies["counts"], strict=True):
        for reply in (few, many):
            assert type(reply) is Counts
            assert (reply.ones.shape, reply.ones.dtype, type(reply.users), type(reply.private)) == ((3,), np.int64, int, bool)
            assert set(vars(reply)) == {"ones", "users", "private"}
        assert abs(len(pickle.dumps(few)) - len(pickle.dumps(many))) <= 8  # a small int is written in fewer bytes
    assert [sorted(map(len, digests)) for digests in replies["prepare"][0]] == [[32], [32, 32, 32]]


def accept(X, y):
    pass


# --- errors


class OddError(Exception):
    """One that cannot be unpickled, as it has another number of arguments than it says."""

    def __init__(self, record, reason):
        super().__init__(f"record {record} {reason}")


def refuse(X, y):
    raise LookupError("no such person")


def spoil(X, y):
    return X * np.where(np.arange(len(X)) == 7, np.nan, 1.0)[:, np.newaxis]


def repeat(X, y):
    return np.vstack([X, X])


@pytest.mark.parametrize(
    ("query", "kind", "words", "told"),
    [
        (refuse, WorkerError, "no such person", "LookupError in a worker"),
        (spoil, cr.ArgumentError, r"vectors\[7\] = nan", "vectors has a value that is not shown; it must be finite"),
        (repeat, cr.ArgumentError, "one per record", "one per record"),
    ],
)
def test_an_error_in_a_worker_arrives_without_what_a_record_holds(shared, query, kind, words, told):
    with pytest.raises(Exception, match=words):
        in_memory().answer(question(query))
    with pytest.raises(kind, match=told) as there:
        shared.answer(question(query))
    if kind is WorkerError:
        assert "raise LookupError" in there.value.__notes__[0]  # which line it was
    same_answers(shared, in_memory(), question())  # it still answers


PLANTED = 271828182.5


def planted_label(folder, X, y):
    """A label that was not declared, found by an estimator where the file is read."""
    model = ShuffleLogisticRegression(classes=[0.0, 1.0])
    write(folder / "people.parquet", X, np.where(np.arange(len(y)) == 7, PLANTED, y))
    return ParquetPopulation(folder / "people.parquet", target="ill", records=model.records)


def planted_target(folder, X, y):
    """A target that the loss does not take."""
    return BlockPopulation([Made(X, np.where(np.arange(len(y)) == 7, PLANTED, y))])


class Clumsy:
    """A block whose own code says what is in a record, and which prints it as what it is."""

    def __init__(self, X, y):
        self.X, self.y, self.users, self.reads = X, y, len(X), 0

    def __repr__(self):
        return f"Clumsy({PLANTED})"

    def read(self):
        raise LookupError(f"cannot look up {PLANTED}")


class Restless(Clumsy):
    """One that is other people whenever it is read."""

    def read(self):
        self.reads += 1
        return self.X + self.reads, self.y


def planted_in_code(folder, X, y):
    return BlockPopulation([Clumsy(X, y)])


def planted_in_a_name(folder, X, y):
    return BlockPopulation([Restless(X, y)])


def planted_in_a_table(folder, X, y):
    """A number that is none, in a CSV file that a worker encodes."""
    lines = [f"{row[0]},{'yes' if label else 'no'}" for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    lines[7] = f"about {PLANTED},no"
    (folder / "people.csv").write_text("\n".join(["age,ill", *lines]) + "\n")
    facts = 'target = {column = "ill", classes = ["no", "yes"]}\ncolumns = {age = {low = 0, high = 1}}'
    maker = ShuffleLogisticRegression(classes=["no", "yes"])
    return BlockPopulation([TableBlock(folder / "people.csv", None, len(X), Encoder(Schema.from_toml(facts)), maker)])


@pytest.mark.parametrize("plant", [planted_label, planted_target, planted_in_code, planted_in_a_name, planted_in_a_table])
def test_a_value_planted_in_a_record_is_in_nothing_that_leaves_a_worker(cluster, tmp_path, capfd, plant):
    """The attack: whoever sees the driver's errors, notes and output reads somebody's record in them."""
    X, y = people(500)
    with RayPopulation(plant(tmp_path, X, y.astype(float)), workers=1, keep=False) as population:
        with pytest.raises((cr.ArgumentError, UnreachableError, WorkerError)) as there:
            run(population, checkpoint=tmp_path / "run")
        everything = "".join(traceback.format_exception(there.value)) + repr(vars(there.value)) + str(capfd.readouterr())
    everything += (tmp_path / "run").read_text()
    assert str(PLANTED) not in everything
    assert "row 8" not in everything  # nor whose it was


# --- records that are not valid


@pytest.mark.parametrize("keep", [True, False])
def test_blanks_are_the_same_on_a_cluster(cluster, tmp_path, keep):
    X, y = people()
    X[[3, 1500], 1], y = [np.nan, -np.inf], y.astype(float)
    y[[9, 3900]] = 7.0, np.nan
    here = run(ArrayPopulation(X, y, blocks=SIZES, invalid="blank"), seed=1, invalid="blank").theta
    write(tmp_path / "a.parquet", X[:3000], y[:3000], row_group_size=1000)
    blocks = [
        Made(X[first : first + size], y[first : first + size]) for first, size in zip([0, 1000, 3000, 3300], SIZES, strict=True)
    ]
    for population in (ArrayPopulation(X, y, blocks=SIZES, invalid="blank"), BlockPopulation(blocks)):
        with RayPopulation(population, workers=2, keep=keep) as there:
            np.testing.assert_array_equal(run(there, seed=1, invalid="blank").theta, here)


def test_a_worker_notices_rows_that_were_swapped_between_two_rounds(cluster, tmp_path):
    """Within the bytes of a file whose length and end stay as they are; in a worker that reads it in every round."""
    X, y = people(500)
    file = write(tmp_path / "people.parquet", X, y, write_statistics=False, compression="none", use_dictionary=False)
    with RayPopulation(ParquetPopulation(file, target="ill"), workers=1, keep=False) as population:
        before = population.answer(question(users=500)).sum
        content = kept = file.read_bytes()
        for column in range(3):
            one, other = (content.index(X[row, column].tobytes()) for row in (3, 400))
            content = bytearray(content)
            content[one : one + 8], content[other : other + 8] = content[other : other + 8], content[one : one + 8]
            content = bytes(content)
        file.write_bytes(content)
        with pytest.raises(UnreachableError, match=r"people\.parquet has changed"):
            population.answer(question(users=500, seed=6))
        file.write_bytes(kept)
        np.testing.assert_array_equal(population.answer(question(users=500)).sum, before)


@dataclass(frozen=True)
class Odd(Problem):
    """A loss that cannot take somebody's record, and says so in an exception that cannot be sent."""

    def gradients(self, theta, X, y):
        if np.any(theta):
            raise OddError(3, "is too long")
        return super().gradients(theta, X, y)


def test_an_error_that_cannot_be_sent_is_not_taken_for_a_lost_worker(shared):
    """Somebody's record may be why: that the run ended there is not covered by its guarantee."""
    with pytest.raises(Exception, match="OddError") as raised:
        run(shared, Odd(loss=Logistic(), domain=BALL))
    assert not isinstance(raised.value, UnreachableError)
    assert raised.value.result.guarantee is None


def test_records_are_checked_in_the_workers_before_anybody_is_asked(cluster):
    X, y = people()
    blocks = [Made(X[:2000], y[:2000]), Made(X[2000:], y[2000:] * 3)]
    with RayPopulation(BlockPopulation(blocks), workers=1) as population, pytest.raises(cr.ArgumentError) as there:
        run(population, seed=1)
    with pytest.raises(cr.ArgumentError) as here:
        run(BlockPopulation(blocks), seed=1)
    assert "y = 3.0" in str(here.value)
    assert str(there.value) == str(here.value).replace("y = 3.0 is not allowed:", "y has a value that is not shown;")
    assert not hasattr(there.value, "result")


class Made:
    """A block of one's own."""

    def __init__(self, X, y):
        self.X, self.y, self.users = X, y, len(X)

    def read(self):
        return self.X, self.y


def test_an_address_is_refused_while_another_ray_is_connected(cluster):
    with pytest.raises(cr.ArgumentError, match="already connected to Ray"):
        RayPopulation(in_memory(), address="auto")


def test_more_workers_than_cpus_are_refused(cluster):
    with pytest.raises(cr.ArgumentError, match=r"at most \d, the CPUs of the cluster"):
        RayPopulation(ArrayPopulation(*people(), blocks=[500] * 8), workers=5)


def test_workers_for_whom_no_cpu_is_free_are_refused_and_not_waited_for(shared):
    with pytest.raises((cr.ArgumentError, UnreachableError), match="CPU"), RayPopulation(in_memory(), workers=3):
        pass


def test_a_population_that_was_closed_says_so(cluster):
    population = RayPopulation(in_memory(), workers=1)
    population.close()
    population.close()
    with pytest.raises(UnreachableError, match="closed"):
        population.answer(question())
    assert ray.is_initialized()


# --- all kinds of data, on one worker


def kinds(files):
    X, y = people()
    groups = np.random.default_rng(1).integers(0, 900, USERS)
    users = len(np.unique(groups))
    return {
        "narrow": ArrayPopulation(np.asfortranarray(X, dtype=np.float32), y, blocks=SIZES),
        "sparse": ArrayPopulation(scipy.sparse.csr_matrix(X * (X > 0)), y, blocks=SIZES),
        "groups": ArrayPopulation(X, y, groups=groups, blocks=[users - 400, 400]),
        "Parquet": ParquetPopulation(files, target="ill"),
        "own": BlockPopulation([Made(X[:1500], y[:1500]), Made(X[1500:], y[1500:])]),
    }


@pytest.mark.parametrize(
    ("kind", "keep"),
    [("narrow", True), ("sparse", True), ("groups", True), ("groups", False), ("Parquet", True), ("Parquet", False), ("own", True)],
)
def test_one_worker_answers_and_digests_as_this_process_does(cluster, files, kind, keep):
    here = kinds(files)[kind]
    with RayPopulation(here, workers=1, keep=keep) as there:
        assert there.users == here.users
        assert there.prepare(accept, bytes(32)) == here.prepare(accept, bytes(32))
        for size in (None, here.users // 2):
            same_answers(there, here, question(users=here.users, size=size))


# --- what is killed or lost


@pytest.fixture
def bomb(tmp_path):
    return tmp_path / "bomb"


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_a_worker_that_is_killed_in_the_middle_of_a_round_changes_nothing(shared, bomb, interactivity):
    problem = Fragile(loss=Logistic(), domain=BALL, bomb=str(bomb))
    options = {"interactivity": interactivity, "seed": 4}
    disturbed = run(shared, problem, callbacks=after(2, bomb.touch), **options)
    assert bomb.with_name("bomb.off").exists()
    np.testing.assert_array_equal(disturbed.theta, run(in_memory(), problem, **options).theta)


def kill(population):
    """Kill every worker, and wait until its process has ended: Ray itself does not wait. Ray starts them anew."""
    for worker in population._workers:
        process = ray.get(worker.__ray_call__.remote(lambda worker: os.getpid()))
        ray.kill(worker, no_restart=False)
        while Path(f"/proc/{process}").exists():
            time.sleep(0.01)


def test_workers_that_are_killed_between_rounds_change_nothing(shared):
    disturbed = run(shared, seed=4, callbacks=after(3, lambda: kill(shared)))
    np.testing.assert_array_equal(disturbed.theta, run(in_memory(), seed=4).theta)


def test_a_run_goes_on_after_its_program_was_killed_in_the_middle_of_a_round(shared, folder, tmp_path):
    """Against the journal as it was after the first round, run to its end in one go in this process."""
    journal, copied, bomb = tmp_path / "run", tmp_path / "copy", tmp_path / "bomb"
    script = """
journal, copied, bomb = sys.argv[1:]
problem = Fragile(loss=Logistic(), domain=BALL, bomb=bomb)
callbacks = [after(1, lambda: shutil.copy(journal, copied)), after(3, lambda: Path(bomb).write_text(str(os.getpid())))]
run(RayPopulation(in_memory(), workers=2), problem, checkpoint=journal, callbacks=callbacks)
"""
    killed = python(script, folder, journal=journal, copied=copied, bomb=bomb)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_until_gone(folder / "tmp")
    problem = Fragile(loss=Logistic(), domain=BALL, bomb=str(bomb))
    assert journal.read_text().count('"answer"') == 3
    assert journal.read_text().count('"ask"') == 4
    undisturbed = run(in_memory(), problem, checkpoint=copied)
    resumed = run(shared, problem, checkpoint=journal)
    np.testing.assert_array_equal(resumed.theta, undisturbed.theta)
    assert resumed.guarantee == undisturbed.guarantee is not None


def lose(file):
    file.unlink()


def replace(file):
    write(file, *people(pq.read_metadata(file).num_rows, seed=9))


@pytest.mark.parametrize("harm", [lose, replace])
def test_a_run_stops_when_a_workers_file_is_gone_and_goes_on_when_it_is_back(cluster, files, tmp_path, harm):
    """Against the journal as it was before, run to its end in one go in this process."""
    journal, copied, kept, file = tmp_path / "run", tmp_path / "copy", tmp_path / "kept", files / "2.parquet"
    shutil.copy(file, kept)
    with RayPopulation(ParquetPopulation(files, target="ill"), workers=2) as population:

        def strike():
            shutil.copy(journal, copied)
            harm(file)
            kill(population)

        with pytest.raises(UnreachableError, match=r"2\.parquet") as stopped:
            run(population, checkpoint=journal, callbacks=after(2, strike))
        assert stopped.value.result.rounds == 2
        assert stopped.value.result.guarantee is not None
        assert any(str(journal) in note for note in stopped.value.__notes__)
        with pytest.raises(UnreachableError, match=r"2\.parquet"):  # nor does it go on before
            run(population, checkpoint=journal)
        shutil.copy(kept, file)
        resumed = run(population, checkpoint=journal)
    undisturbed = run(ParquetPopulation(files, target="ill"), checkpoint=copied)
    np.testing.assert_array_equal(resumed.theta, undisturbed.theta)
    assert resumed.guarantee == undisturbed.guarantee


class Fickle:
    """A block with as many records as are in a file, of other people once the file is longer."""

    def __init__(self, path):
        self.path, self.users = path, 2000

    def read(self):
        return people(2000, seed=Path(self.path).stat().st_size)


def test_a_worker_that_comes_back_with_other_records_is_refused_until_it_has_the_same_again(cluster, tmp_path):
    file = tmp_path / "seed"
    file.write_text("a")
    with RayPopulation(BlockPopulation([Fickle(str(file)), Made(*people(2000))]), workers=1) as population:
        before = population.answer(question()).sum
        file.write_text("ab")
        np.testing.assert_array_equal(population.answer(question()).sum, before)  # it keeps what it has read
        kill(population)
        with pytest.raises(UnreachableError, match="other records than the run began with"):
            population.answer(question())
        file.write_text("a")
        np.testing.assert_array_equal(population.answer(question()).sum, before)  # those are back
