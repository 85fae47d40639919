"""Users in Parquet files: the same answers as from memory, a block of memory at a time, and files that change or go away."""

from __future__ import annotations

import shutil
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

import croupier as cr
from croupier.estimator import ShuffleLogisticRegression
from croupier.population import ArrayPopulation, ParquetPopulation, parquet
from croupier.population._blocks import BlockPopulation
from croupier.population.parquet import ParquetBlock
from croupier.population.population import Batch, Question, UnreachableError
from croupier.problem import Ball, Logistic, Problem
from croupier.protocol.randomness import Secret

NAMES = ("age", "height", "weight")
PROBLEM = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0))
REQUEST = {"epsilon": 2.0, "delta": 1e-6, "rounds": 6, "rule": "practical"}


def people(users, seed=0):
    """Rows of three numbers, and who is ill."""
    X = np.random.default_rng(seed).normal(size=(users, 3)) / 3
    return X, X[:, 0] > 0.1


def write(path, X, y, row_group_size=1000, **options):
    """The rows as a Parquet file with the columns age, height, weight and ill."""
    table = pa.table({**dict(zip(NAMES, X.T, strict=True)), "ill": y})
    pq.write_table(table, path, row_group_size=row_group_size, **options)
    return path


def sizes(population):
    return [placed.block.users for placed in population.shard.placed]


def read(population):
    """All records, block after block."""
    blocks = [placed.block.read() for placed in population.shard.placed]
    return np.concatenate([X for X, _ in blocks]), np.concatenate([y for _, y in blocks])


def answer(population, seed=1, crowd=None):
    """The sum of everybody's row, under a seed; the plan counts on all of them or on a smaller crowd."""
    plan = cr.plan_sum(epsilon=2.0, delta=1e-6, users=crowd or population.users, dim=3)
    question = Question(lambda X, y: X, Batch.everyone(population.users), plan, Secret.of_seed(seed))
    return population.answer(question).sum


def minimized(population, **options):
    return cr.minimize(PROBLEM, population, **REQUEST, **options)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(parquet, "BLOCK_USERS", 1000)


@pytest.fixture
def folder(tmp_path, small_blocks):
    """3 000 people in three files of two row groups each."""
    X, y = people(3000)
    for number in range(3):
        here = slice(1000 * number, 1000 * (number + 1))
        write(tmp_path / f"part-{number}.parquet", X[here], y[here], 500)
    return tmp_path


# --- what is read


@pytest.mark.parametrize("as_path", [str, lambda path: path, lambda path: path.as_uri()], ids=["text", "path", "URI"])
@pytest.mark.parametrize("which", ["part-1.parquet", "."])
def test_a_file_or_a_folder_is_found_by_its_path_or_its_uri(folder, as_path, which):
    X, y = people(3000)
    here = slice(None) if which == "." else slice(1000, 2000)
    found = read(ParquetPopulation(as_path((folder / which).resolve()), target="ill"))
    np.testing.assert_array_equal(found[0], X[here])
    np.testing.assert_array_equal(found[1], y[here])


def test_a_path_is_relative_to_where_the_population_was_made(folder, monkeypatch):
    monkeypatch.chdir(folder)
    population = ParquetPopulation("part-0.parquet", target="ill")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(read(population)[0], people(3000)[0][:1000])


@pytest.mark.parametrize("as_path", [str, lambda path: path.as_uri()], ids=["path", "URI"])
def test_names_with_signs_that_uris_quote_are_names_like_any_other(tmp_path, as_path):
    where = tmp_path / "these people"
    where.mkdir()
    write(where / "50% #1.parquet", *people(100))
    assert ParquetPopulation(as_path(where), target="ill").users == 100


def test_files_come_in_the_order_of_their_names_and_others_are_left_alone(folder):
    (folder / "part-0.parquet").rename(folder / "z.PQ")
    for other in (".part.parquet", "README.md", "_SUCCESS"):
        (folder / other).write_text("not people")
    (folder / "_temporary").mkdir()
    X, _ = people(3000)
    np.testing.assert_array_equal(read(ParquetPopulation(folder, target="ill"))[0], np.concatenate([X[1000:], X[:1000]]))


def test_folders_in_a_folder_are_refused_and_not_left_out(folder):
    (folder / "year=2024").mkdir()
    with pytest.raises(cr.ArgumentError, match="year=2024"):
        ParquetPopulation(folder, target="ill")


def test_features_are_the_columns_named_in_their_order(folder):
    population = ParquetPopulation(folder, target="ill", features=["weight", "age"])
    np.testing.assert_array_equal(read(population)[0], people(3000)[0][:, [2, 0]])
    assert (population.features, population.target) == (("weight", "age"), "ill")
    assert ParquetPopulation(folder, target="ill").features == NAMES


def test_columns_may_stand_in_another_order_in_every_file(tmp_path):
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [4.0], "a": [3.0], "more": ["text"]}), tmp_path / "2.parquet")
    blocks = ParquetPopulation(tmp_path).shard.placed
    assert [placed.block.read()[0].tolist() for placed in blocks] == [[[1.0, 2.0]], [[3.0, 4.0]]]


def test_without_a_target_there_is_no_y(folder):
    X, y = ParquetPopulation(folder, features=NAMES).shard.placed[0].block.read()
    assert y is None
    assert X.shape == (1000, 3)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("float32", "float32"), np.float32),
        (("float32", "float64"), np.float64),
        (("int8", "uint64"), np.float64),
        (("bool_", "float16"), np.float64),
    ],
)
def test_all_kinds_of_numbers_become_float64_and_float32_stays(tmp_path, kinds, expected):
    columns = [pa.array(np.array([0, 1, 1]).astype(kind)) for kind in kinds]
    pq.write_table(pa.table(dict(zip("ab", columns, strict=True))), tmp_path / "a.parquet")
    X, _ = ParquetPopulation(tmp_path).shard.placed[0].block.read()
    assert X.dtype == expected
    assert X.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_targets_are_as_they_are_in_the_file(tmp_path):
    for kind, column in {
        "U": pa.array(["a", "b"]),
        "O": pa.array(["a", "b"]).dictionary_encode(),
        "i": pa.array([1, 2]),
        "b": pa.array([True, False]),
    }.items():
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": column}), tmp_path / "a.parquet")
        y = ParquetPopulation(tmp_path, target="y").shard.placed[0].block.read()[1]
        assert y.tolist() == column.to_pylist(), kind


# --- blocks


@pytest.mark.parametrize(
    ("row_groups", "blocks"),
    [
        ([300, 300, 300, 300], [900, 300]),
        ([1000, 1000], [1000, 1000]),
        ([400, 2500, 400], [400, 2500, 400]),
        ([1001], [1001]),
        ([500, 500, 1, 999], [1000, 1000]),
        ([0, 600, 0, 400, 0], [1000]),
    ],
)
def test_a_block_is_a_run_of_row_groups_up_to_its_size_or_one_that_is_larger(tmp_path, small_blocks, row_groups, blocks):
    X, y = people(sum(row_groups))
    table, first = pa.table({**dict(zip(NAMES, X.T, strict=True)), "ill": y}), 0
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as file:
        for rows in row_groups:
            file.write_table(table.slice(first, rows))
            first += rows
    population = ParquetPopulation(tmp_path, target="ill")
    assert sizes(population) == blocks
    np.testing.assert_array_equal(read(population)[0], X)
    np.testing.assert_array_equal(answer(population), answer(ArrayPopulation(X, y, blocks=blocks)))


def test_a_block_ends_with_its_file_and_empty_files_have_none(folder):
    X, y = people(3000)
    write(folder / "part-0a.parquet", X[:0], y[:0])
    assert sizes(ParquetPopulation(folder, target="ill")) == [1000, 1000, 1000]


def test_rows_are_read_the_same_in_batches_of_any_size(folder, monkeypatch):
    whole = read(ParquetPopulation(folder, target="ill"))
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 77)
    pieces = read(ParquetPopulation(folder, target="ill"))
    np.testing.assert_array_equal(whole[0], pieces[0])
    np.testing.assert_array_equal(whole[1], pieces[1])


# --- what is answered


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_a_run_is_bit_for_bit_that_of_the_same_blocks_in_memory(folder, keep, interactivity):
    stored = ParquetPopulation(folder, target="ill", keep=keep)
    in_memory = ArrayPopulation(*people(3000), blocks=sizes(stored))
    own = BlockPopulation(Plain(placed.block) for placed in stored.shard.placed)
    thetas = [minimized(population, seed=3, interactivity=interactivity).theta for population in (stored, in_memory, own)]
    np.testing.assert_array_equal(thetas[0], thetas[1])
    np.testing.assert_array_equal(thetas[0], thetas[2])
    assert np.any(thetas[0] != 0)


class Plain:
    """A block of somebody's own class."""

    def __init__(self, block):
        self.users, self.read = block.users, block.read


def test_a_faithful_round_makes_every_message_and_is_close_to_the_sum(folder):
    population = ParquetPopulation(folder / "part-0.parquet", target="ill", mode="faithful")
    plan = cr.plan_sum(epsilon=2.0, delta=1e-6, users=1000, dim=3)
    X = people(3000)[0][:1000]
    assert np.abs(answer(population) - X.sum(axis=0)).max() < 6 * plan.noise_std + 1


@pytest.mark.parametrize("random_state", [5, 6])
def test_a_model_fits_on_files_as_it_does_in_memory(folder, random_state):
    X, y = people(3000)
    settings = {"epsilon": 4.0, "classes": [False, True], "feature_norm": 2.0, "rounds": 8, "random_state": random_state}
    model = ShuffleLogisticRegression(**settings)
    (folder / "whole").mkdir()
    write(folder / "whole" / "a.parquet", X, y, 3000)  # one block, as in memory
    stored = ParquetPopulation(folder / "whole", target="ill", records=model.records)
    model.fit_population(stored, len(stored.features))
    in_memory = ShuffleLogisticRegression(**settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, in_memory.coef_)
    np.testing.assert_array_equal(model.intercept_, in_memory.intercept_)
    assert model.score(X, y) > 0.6


def test_labels_that_were_not_declared_are_refused_before_anybody_is_asked(folder):
    model = ShuffleLogisticRegression(classes=["ill", "well"])
    stored = ParquetPopulation(folder, target="ill", records=model.records)
    with pytest.raises(cr.ArgumentError):
        model.fit_population(stored, 3)
    assert not hasattr(model, "result_")


# --- what is held


def test_memory_is_the_same_for_a_file_of_twenty_times_the_blocks(tmp_path, monkeypatch):
    """The peak of what Python and Arrow hold, under one plan: another plan draws its noise in pieces of another size."""
    monkeypatch.setattr(parquet, "BLOCK_USERS", 20_000)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 5_000)
    peaks = {}
    for blocks in (2, 40):
        file = write(tmp_path / f"{blocks}.parquet", *people(20_000 * blocks), 10_000, compression="none")
        population = ParquetPopulation(file, target="ill")
        assert sizes(population) == [20_000] * blocks
        peaks[blocks] = peak_of(population)
    assert peaks[40] < 1.1 * peaks[2]
    assert peaks[40] < file.stat().st_size / 5


def peak_of(population):
    """The most bytes that are held at a time while records are prepared and asked; Arrow's as they are when a block was read."""
    answer(population, crowd=10_000)  # whatever is imported or kept on first use
    before, seen = pa.total_allocated_bytes(), []
    tracemalloc.start()
    try:
        population.prepare(lambda X, y: seen.append(pa.total_allocated_bytes()), bytes(32))
        answer(population, crowd=10_000)
        return tracemalloc.get_traced_memory()[1] + max(seen) - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("keep", "reads"), [(True, 3), (False, 3 + 3 * 4)])
def test_with_keep_every_block_is_read_once(folder, monkeypatch, keep, reads):
    count, really = [], ParquetBlock.read
    monkeypatch.setattr(ParquetBlock, "read", lambda block: count.append(block) or really(block))
    population = ParquetPopulation(folder, target="ill", keep=keep)
    assert count == []  # making it reads the ends of the files alone
    cr.minimize(PROBLEM, population, epsilon=2.0, delta=1e-6, rounds=4, rule="practical", interactivity="full", seed=1)
    assert len(count) == reads


# --- what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "sick"}, r"column 'sick' = 'not there'.*'age', 'height'"),
        ({"target": "ill", "features": ["age", "size"]}, "column 'size' = 'not there'"),
        ({"target": "ill", "features": ["age", "ill"]}, "other than the target"),
        ({"target": "ill", "features": []}, "other than the target"),
        ({"mode": "fast", "target": "ill"}, "mode"),
    ],
)
def test_columns_that_are_not_there_are_refused(folder, options, words):
    with pytest.raises(cr.ArgumentError, match=words):
        answer(ParquetPopulation(folder, **options))


def test_a_column_that_is_not_there_in_one_of_the_files_is_refused_with_its_name(folder):
    pq.write_table(pa.table({"age": [1.0], "ill": [True]}), folder / "part-9.parquet")
    with pytest.raises(cr.ArgumentError, match=r"'height' = 'not there'.*part-9\.parquet"):
        ParquetPopulation(folder, target="ill")


def test_a_file_with_two_columns_of_a_name_is_refused(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(cr.ArgumentError, match="more than once"):
        ParquetPopulation(tmp_path)


def test_a_file_of_the_target_alone_is_refused(tmp_path):
    pq.write_table(pa.table({"ill": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(cr.ArgumentError, match="other than the target"):
        ParquetPopulation(tmp_path, target="ill")


@pytest.mark.parametrize(
    "column",
    [pa.array(["a"]), pa.array(["a"]).dictionary_encode(), pa.array([0], pa.timestamp("s")), pa.array([[1.0]]), pa.nulls(1)],
    ids=lambda column: str(column.type).split("<", maxsplit=1)[0],
)
def test_features_that_are_no_numbers_are_refused(tmp_path, column):
    pq.write_table(pa.table({"a": [1.0], "b": column}), tmp_path / "a.parquet")
    with pytest.raises(cr.ArgumentError, match=r"column 'b' of .*a\.parquet.*numbers"):
        ParquetPopulation(tmp_path)


@pytest.mark.parametrize("name", ["nowhere.parquet", "empty", "nothing://here", "file:///nowhere/at/all"])
def test_a_path_without_files_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nobody")
    with pytest.raises(cr.ArgumentError, match="path"):
        ParquetPopulation(name)


@pytest.mark.parametrize(
    "content", [b"", b"PAR", b"age,ill\n1,2\n" * 50, b"\xff" * 100], ids=["nothing", "little", "CSV", "garbage"]
)
def test_what_is_not_a_parquet_file_is_refused_by_name(folder, content):
    (folder / "part-5.parquet").write_bytes(content)
    with pytest.raises(cr.ArgumentError, match=r"part-5\.parquet.*whole Parquet file"):
        ParquetPopulation(folder, target="ill")


def test_a_file_that_was_cut_off_is_refused(folder):
    file = folder / "part-1.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(cr.ArgumentError, match=r"part-1\.parquet.*whole Parquet file"):
        ParquetPopulation(folder, target="ill")


def test_files_without_a_single_row_are_refused(tmp_path):
    write(tmp_path / "a.parquet", *people(0))
    with pytest.raises(cr.ArgumentError, match="at least one block"):
        ParquetPopulation(tmp_path, target="ill")


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64(), pa.bool_()], ids=str)
@pytest.mark.parametrize("column", ["age", "ill"])
def test_missing_values_are_refused_before_anybody_is_asked(folder, kind, column):
    values = pa.array([1, 0, None] * 100, pa.int64()).cast(kind)
    table = pq.read_table(folder / "part-2.parquet").slice(0, 300)
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, values), folder / "part-2.parquet")
    with pytest.raises(cr.ArgumentError) as refused:
        minimized(ParquetPopulation(folder, target="ill"), seed=1)
    assert not hasattr(refused.value, "result")


def test_infinite_numbers_are_refused_before_anybody_is_asked(folder):
    X, y = people(1000)
    X[700, 1] = np.inf
    write(folder / "part-2.parquet", X, y)
    with pytest.raises(cr.ArgumentError, match=r"X\[700\]"):
        minimized(ParquetPopulation(folder, target="ill"), seed=1)


# --- files that change or go away


def lose(path):
    path.unlink()


def replace(path):
    write(path, *people(1000, seed=9), 500)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage(path):
    """Zeros in the middle, where the numbers are."""
    content = bytearray(path.read_bytes())
    content[100:-2000] = bytes(len(content) - 2100)
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [lose, replace, cut, damage])
def test_a_file_that_is_harmed_in_a_run_stops_it_by_name_and_what_was_released_keeps_its_guarantee(folder, harm):
    population = ParquetPopulation(folder, target="ill")

    def callback(done):
        if done.index == 2:
            harm(folder / "part-1.parquet")

    with pytest.raises(UnreachableError, match=r"part-1\.parquet") as stopped:
        minimized(population, callbacks=callback)
    assert stopped.value.result.rounds == 2
    assert stopped.value.result.guarantee is not None
    assert stopped.value.result.stopped


@pytest.mark.parametrize("harm", [lose, replace, cut, damage])
def test_a_run_goes_on_when_the_file_is_back_and_ends_as_if_nothing_had_been(folder, tmp_path_factory, harm):
    """Against the same journal, copied while all was well and run to its end in one go."""
    other = tmp_path_factory.mktemp("other")
    journal, copied, kept = other / "run", other / "copy", other / "kept.parquet"
    shutil.copy(folder / "part-1.parquet", kept)

    def callback(done):
        if done.index == 2 and not copied.exists():
            shutil.copy(journal, copied)
            harm(folder / "part-1.parquet")

    with pytest.raises(UnreachableError) as stopped:
        minimized(ParquetPopulation(folder, target="ill"), checkpoint=journal, callbacks=callback)
    assert any(str(journal) in note for note in stopped.value.__notes__)
    shutil.copy(kept, folder / "part-1.parquet")
    resumed = minimized(ParquetPopulation(folder, target="ill"), checkpoint=journal)
    undisturbed = minimized(ParquetPopulation(folder, target="ill"), checkpoint=copied)
    np.testing.assert_array_equal(resumed.theta, undisturbed.theta)
    assert (resumed.rounds, resumed.stopped) == (6, False)
    assert resumed.guarantee == undisturbed.guarantee


def stop_after(rounds):
    def callback(done):
        if done.index == rounds:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("whole_again", [False, True], ids=["the population", "a new population"])
def test_a_run_does_not_go_on_with_other_records(folder, tmp_path_factory, whole_again):
    journal = tmp_path_factory.mktemp("other") / "run"
    population = ParquetPopulation(folder, target="ill")
    with pytest.raises(KeyboardInterrupt):
        minimized(population, checkpoint=journal, callbacks=stop_after(2))
    replace(folder / "part-1.parquet")
    if whole_again:
        with pytest.raises(cr.ArgumentError, match="the data has changed since"):
            minimized(ParquetPopulation(folder, target="ill"), checkpoint=journal)
    else:
        with pytest.raises(UnreachableError, match=r"part-1\.parquet has changed"):
            minimized(population, checkpoint=journal)


def test_one_changed_number_is_enough_to_refuse_even_where_the_files_end_is_the_same(folder, tmp_path_factory):
    journal = tmp_path_factory.mktemp("other") / "run"
    X, y = people(1000)
    plain = {"write_statistics": False, "compression": "none", "use_dictionary": False}
    write(folder / "part-1.parquet", X, y, 500, **plain)
    before = ParquetPopulation(folder, target="ill")
    with pytest.raises(KeyboardInterrupt):
        minimized(before, checkpoint=journal, callbacks=stop_after(2))
    X[123, 1] += 1e-9
    write(folder / "part-1.parquet", X, y, 500, **plain)
    after = ParquetPopulation(folder, target="ill")
    assert [p.block.footer for p in after.shard.placed] == [p.block.footer for p in before.shard.placed]
    with pytest.raises(cr.ArgumentError, match="the data has changed since"):
        minimized(after, checkpoint=journal)
    with pytest.raises(UnreachableError, match=r"part-1\.parquet has changed"):  # it has read the file before
        minimized(before, checkpoint=journal)


def swap_rows(file, one, other):
    """Swap two rows within the bytes of a file of plain columns: its length, its end and all that it says of itself stay."""
    table, content = pq.read_table(file), file.read_bytes()
    for name in NAMES:
        values = [np.float64(table[name][row].as_py()).tobytes() for row in (one, other)]
        places = [content.index(value) for value in values]
        for place, value in zip(places, reversed(values), strict=True):
            content = content[:place] + value + content[place + 8 :]
    file.write_bytes(content)


PLAIN = {"write_statistics": False, "compression": "none", "use_dictionary": False}


@pytest.mark.parametrize("target", ["ill", None], ids=["with a target", "without"])
def test_rows_that_are_swapped_between_two_rounds_are_noticed(tmp_path, small_blocks, target):
    """The attack: the same length, the same footer, the same people, in each other's place. Someone would be asked twice."""
    X, _ = people(2000)
    file = write(tmp_path / "people.parquet", X, np.zeros(2000, bool), 500, **PLAIN)
    population = ParquetPopulation(file, target=target, features=NAMES)
    population.prepare(lambda X, y: None)
    first = answer(population)
    before = file.read_bytes()
    swap_rows(file, 1100, 1900)
    assert len(file.read_bytes()) == len(before)
    assert [p.block.footer for p in ParquetPopulation(file).shard.placed] == [p.block.footer for p in population.shard.placed]
    np.testing.assert_array_equal(pq.read_table(file)["age"].to_numpy()[[1100, 1900]], X[[1900, 1100], 0])  # swapped they are
    with pytest.raises(UnreachableError, match=r"people\.parquet has changed.*Nothing was released"):
        answer(population, seed=2)
    file.write_bytes(before)
    np.testing.assert_array_equal(answer(population), first)  # and it goes on with what it was


def test_a_run_ends_where_its_file_changes_and_what_was_released_before_keeps_its_guarantee(tmp_path, small_blocks):
    X, y = people(2000)
    file = write(tmp_path / "people.parquet", X, y, 500, **PLAIN)

    def swap(done):
        if done.index == 2:
            swap_rows(file, 3, 1500)

    with pytest.raises(UnreachableError, match=r"people\.parquet has changed") as stopped:
        minimized(ParquetPopulation(file, target="ill"), callbacks=swap, interactivity="full")
    assert stopped.value.result.rounds == 2
    assert stopped.value.result.guarantee is not None


def test_columns_that_are_not_read_may_change(tmp_path):
    X, y = people(2000)
    file = write(tmp_path / "people.parquet", X, y, 500, **PLAIN)
    population = ParquetPopulation(file, target="ill", features=["height"])
    population.prepare(lambda X, y: None)
    content = file.read_bytes()
    place = content.index(X[7, 0].tobytes())
    file.write_bytes(content[:place] + X[8, 0].tobytes() + content[place + 8 :])
    population.prepare(lambda X, y: None)


def test_a_run_on_files_goes_on_with_the_same_records_in_memory(folder, tmp_path_factory):
    """Records are told by what they are, not where."""
    journal = tmp_path_factory.mktemp("other") / "run"
    with pytest.raises(KeyboardInterrupt):
        minimized(ParquetPopulation(folder, target="ill"), checkpoint=journal, callbacks=stop_after(3))
    shutil.copy(journal, copied := journal.with_name("copy"))
    in_memory = minimized(ArrayPopulation(*people(3000), blocks=[1000] * 3), checkpoint=journal)
    np.testing.assert_array_equal(in_memory.theta, minimized(ParquetPopulation(folder, target="ill"), checkpoint=copied).theta)
