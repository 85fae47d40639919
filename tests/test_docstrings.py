"""Every public name explains itself in numpydoc's sections: what `help()` and the reference show is all that a stranger has.

Checked are the names that the reference lists, and the public methods of the classes among them. TO_DO holds those that do not
comply yet: a name that complies has to leave it, and no name comes in.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from numpydoc.validate import validate

import croupier
from tools import reference

# numpydoc's checks that have to pass: a docstring with a summary that is a sentence; every parameter documented, none unknown,
# in their order, each with a type and a meaning; what is returned or yielded, with its meaning; an example.
CHECKS = {"GL08", "SS01", "SS03", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03", "YD01", "EX01"}
NEEDS_NO_EXAMPLE = "croupier.service."  # servers: docs/deploy.md has the commands that start them

TO_DO: set[str] = {
    "croupier.game.kinds.Coins",
    "croupier.game.kinds.Coins.seed",
    "croupier.game.kinds.Kind",
    "croupier.game.play.Finding",
    "croupier.game.play.Finding.to_dict",
    "croupier.game.play.Findings",
    "croupier.game.play.Findings.to_dict",
    "croupier.game.play.Findings.to_json",
    "croupier.population.arrays.ArrayPopulation",
    "croupier.population.blocks.Block",
    "croupier.population.blocks.Block.users",
    "croupier.population.blocks.BlockPopulation",
    "croupier.population.blocks.BlockPopulation.answer",
    "croupier.population.blocks.BlockPopulation.prepare",
    "croupier.population.blocks.BlockPopulation.users",
    "croupier.population.blocks.CheckedBlock",
    "croupier.population.blocks.CheckedBlock.checks_itself",
    "croupier.population.blocks.NamedBlock",
    "croupier.population.blocks.NamedBlock.file_name",
    "croupier.population.cluster.RayPopulation",
    "croupier.population.cluster.RayPopulation.answer",
    "croupier.population.cluster.RayPopulation.prepare",
    "croupier.population.cluster.RayPopulation.workers",
    "croupier.population.dealing.Batch",
    "croupier.population.dealing.Batch.everyone",
    "croupier.population.dealing.Batch.is_everyone",
    "croupier.population.dealing.Batch.members",
    "croupier.population.dealing.Batch.size",
    "croupier.population.dealing.Order",
    "croupier.population.dealing.Order.lots",
    "croupier.population.dealing.Order.ranked",
    "croupier.population.dealing.Order.smallest",
    "croupier.population.dealing.Order.tickets",
    "croupier.population.dealing.deal",
    "croupier.population.dealing.draw_lots",
    "croupier.population.parquet.ParquetBlock",
    "croupier.population.parquet.ParquetBlock.file_name",
    "croupier.population.parquet.ParquetBlock.read",
    "croupier.population.parquet.ParquetPopulation",
    "croupier.population.parquet.row_group_runs",
    "croupier.population.population.ParallelQuery",
    "croupier.population.population.ParallelQuery.parallel",
    "croupier.population.population.Population",
    "croupier.population.population.Population.answer",
    "croupier.population.population.Population.prepare",
    "croupier.population.population.Population.private",
    "croupier.population.population.Population.unit",
    "croupier.population.population.Population.users",
    "croupier.population.population.ProductQuery",
    "croupier.population.population.ProductQuery.products",
    "croupier.population.population.Query",
    "croupier.population.population.Question",
    "croupier.population.population.Question.promised",
    "croupier.population.population.RangedQuery",
    "croupier.population.population.RangedQuery.diameter",
    "croupier.population.population.RangedQuery.norm",
    "croupier.population.population.SparseQuery",
    "croupier.population.population.SparseQuery.entries",
    "croupier.population.population.UnreachableError",
    "croupier.population.population.require_population",
    "croupier.population.records.Records",
    "croupier.population.records.Records.check",
    "croupier.population.records.Records.digest",
    "croupier.population.records.Records.gathered",
    "croupier.population.records.Records.read",
    "croupier.population.records.Records.tag",
    "croupier.population.records.Records.users",
    "croupier.population.records.Records.vectors",
    "croupier.population.surrogate.SurrogatePopulation",
    "croupier.privacy.plan.SumPlan",
    "croupier.problem.checking.check",
    "croupier.problem.domains.Ball",
    "croupier.problem.domains.Box",
    "croupier.problem.domains.Domain",
    "croupier.problem.domains.Domain.distance_bound",
    "croupier.problem.domains.Domain.project",
    "croupier.problem.domains.Domain.start",
    "croupier.problem.domains.Simplex",
    "croupier.problem.domains.WholeSpace",
    "croupier.problem.losses.Absolute",
    "croupier.problem.losses.EpsilonInsensitive",
    "croupier.problem.losses.Hinge",
    "croupier.problem.losses.Huber",
    "croupier.problem.losses.Logistic",
    "croupier.problem.losses.Loss",
    "croupier.problem.losses.Loss.prox_slope",
    "croupier.problem.losses.Loss.slope",
    "croupier.problem.losses.Loss.slope_bound",
    "croupier.problem.losses.Loss.targets",
    "croupier.problem.losses.Loss.valid",
    "croupier.problem.losses.Loss.value",
    "croupier.problem.losses.Multinomial",
    "croupier.problem.losses.Pinball",
    "croupier.problem.losses.SmoothedHinge",
    "croupier.problem.losses.Squared",
    "croupier.problem.losses.SquaredHinge",
    "croupier.problem.problem.CustomProblem",
    "croupier.problem.problem.CustomProblem.dim",
    "croupier.problem.problem.CustomProblem.gradients",
    "croupier.problem.problem.Objective",
    "croupier.problem.problem.Objective.dim",
    "croupier.problem.problem.Objective.domain",
    "croupier.problem.problem.Objective.gradients",
    "croupier.problem.problem.Objective.lipschitz",
    "croupier.problem.problem.Objective.smoothness",
    "croupier.problem.problem.Objective.strong_convexity",
    "croupier.problem.problem.Problem",
    "croupier.problem.problem.Problem.check_records",
    "croupier.problem.problem.Problem.check_shape",
    "croupier.problem.problem.Problem.dim",
    "croupier.problem.problem.Problem.features",
    "croupier.problem.problem.Problem.gradients",
    "croupier.problem.problem.Problem.linear_gradients",
    "croupier.problem.problem.Problem.linear_moreau_gradients",
    "croupier.problem.problem.Problem.lipschitz",
    "croupier.problem.problem.Problem.losses",
    "croupier.problem.problem.Problem.moreau_gradients",
    "croupier.problem.problem.Problem.prox",
    "croupier.problem.problem.Problem.smoothed",
    "croupier.problem.problem.Problem.smoothness",
    "croupier.problem.problem.Problem.strong_convexity",
    "croupier.problem.problem.Smoothed",
    "croupier.problem.problem.Smoothed.dim",
    "croupier.problem.problem.Smoothed.domain",
    "croupier.problem.problem.Smoothed.gradients",
    "croupier.problem.problem.Smoothed.linear_gradients",
    "croupier.problem.problem.Smoothed.lipschitz",
    "croupier.problem.problem.Smoothed.smoothness",
    "croupier.problem.problem.Smoothed.strong_convexity",
    "croupier.protocol.randomizer.Randomizer.encoded_zeros",
    "croupier.protocol.sparse.SparseVectors",
    "croupier.protocol.sparse.SparseVectors.encoded",
    "croupier.protocol.sparse.SparseVectors.usual",
    "croupier.protocol.sums.VectorSum.blank_counts",
    "croupier.protocol.sums.VectorSum.blank_reports",
    "croupier.report.baselines.Baseline",
    "croupier.report.baselines.central",
    "croupier.report.baselines.local",
    "croupier.report.baselines.simulate_central",
    "croupier.report.baselines.simulate_local",
    "croupier.report.compare.Comparison",
    "croupier.report.compare.Method",
    "croupier.report.compare.compare",
    "croupier.report.html.html_report",
    "croupier.report.models.promise_lines",
    "croupier.report.models.schema_facts",
    "croupier.report.tables.certified",
    "croupier.report.tables.compare_table",
    "croupier.report.tables.lots_table",
    "croupier.report.tables.plan_table",
    "croupier.report.tables.proof_table",
    "croupier.service.analyzer.Answered",
    "croupier.service.analyzer.RemotePopulation",
    "croupier.service.analyzer.RemotePopulation.answer",
    "croupier.service.analyzer.RemotePopulation.answered",
    "croupier.service.analyzer.RemotePopulation.current",
    "croupier.service.analyzer.RemotePopulation.prepare",
    "croupier.service.analyzer.RemotePopulation.spoiled",
    "croupier.service.analyzer.RemotePopulation.take",
    "croupier.service.analyzer.RemotePopulation.users",
    "croupier.service.analyzer.RemotePopulation.waiting",
    "croupier.service.analyzer.SpoiledError",
    "croupier.service.client.Sent",
    "croupier.service.shuffler.Arrivals",
    "croupier.service.shuffler.RefusedError",
    "croupier.service.shuffler.ShufflerRole",
    "croupier.service.shuffler.ShufflerRole.arrivals",
    "croupier.service.shuffler.ShufflerRole.clients_of",
    "croupier.service.shuffler.ShufflerRole.current",
    "croupier.service.shuffler.ShufflerRole.forwarded",
    "croupier.service.shuffler.ShufflerRole.open",
    "croupier.service.shuffler.ShufflerRole.public_key",
    "croupier.service.shuffler.ShufflerRole.receive",
    "croupier.service.shuffler.ShufflerRole.receive_all",
    "croupier.service.shuffler.ShufflerRole.rounds_for",
    "croupier.service.shuffler.ShufflerRole.said",
    "croupier.service.shuffler.ShufflerRole.take_task",
    "croupier.service.shuffler.ShufflerRole.waiting_batch",
    "croupier.service.shuffler.Taken",
    "croupier.service.shuffler.Written",
    "croupier.service.task.Task",
    "croupier.service.task.Task.document",
    "croupier.service.task.Task.most_batch_bytes",
    "croupier.service.task.Task.read",
    "croupier.service.task.Task.rounds_of",
    "croupier.service.task.Task.slot",
    "croupier.service.task.TaskRound",
    "croupier.service.task.TaskRound.document",
    "croupier.service.task.TaskRound.phase_of",
    "croupier.service.task.TaskRound.read",
    "croupier.service.transport.check_shape",
    "croupier.service.transport.mask",
    "croupier.service.transport.opened",
    "croupier.service.transport.sealed_report",
    "croupier.service.transport.shuffled",
    "croupier.service.wire.Document",
    "croupier.service.wire.Document.from_bytes",
    "croupier.service.wire.Document.signed",
    "croupier.service.wire.Document.to_bytes",
    "croupier.service.wire.Document.verified",
    "croupier.service.wire.SealedBatch",
    "croupier.service.wire.SealedBatch.dim",
    "croupier.service.wire.SealedBatch.from_bytes",
    "croupier.service.wire.SealedBatch.to_bytes",
    "croupier.service.wire.SealedReport",
    "croupier.service.wire.SealedReport.dim",
    "croupier.service.wire.SealedReport.from_bytes",
    "croupier.service.wire.SealedReport.to_bytes",
    "croupier.service.wire.batch_bytes",
    "croupier.service.wire.canonical",
    "croupier.service.wire.report_bytes",
    "croupier.service.wire.sha256",
    "croupier.statistics.asking.Account",
    "croupier.statistics.asking.Account.charge",
    "croupier.statistics.asking.Answer",
    "croupier.statistics.asking.ask",
    "croupier.statistics.asking.plan_for",
    "croupier.statistics.checking.check",
    "croupier.statistics.evaluating.Evaluation",
    "croupier.statistics.evaluating.Evaluation.scores",
    "croupier.statistics.evaluating.Evaluation.to_dict",
    "croupier.statistics.evaluating.evaluate",
    "croupier.statistics.histogram.Histogram",
    "croupier.statistics.histogram.Histogram.check_records",
    "croupier.statistics.histogram.Histogram.decode",
    "croupier.statistics.histogram.Histogram.dim",
    "croupier.statistics.histogram.HistogramAnswer",
    "croupier.statistics.histogram.HistogramAnswer.quantile",
    "croupier.statistics.linear.LeastSquares",
    "croupier.statistics.linear.LeastSquares.intervals",
    "croupier.statistics.linear.least_squares",
    "croupier.statistics.moments.MomentSums",
    "croupier.statistics.moments.MomentSums.of",
    "croupier.statistics.moments.Moments",
    "croupier.statistics.moments.Moments.check_records",
    "croupier.statistics.moments.Moments.decode",
    "croupier.statistics.moments.Moments.dim",
    "croupier.statistics.moments.Moments.products",
    "croupier.statistics.query.CustomQuery",
    "croupier.statistics.query.CustomQuery.decode",
    "croupier.statistics.query.CustomQuery.raw",
    "croupier.statistics.query.Statistic",
    "croupier.statistics.query.Statistic.decode",
    "croupier.statistics.query.Statistic.dim",
    "croupier.statistics.scores.CellCounts",
    "croupier.statistics.scores.Errors",
    "croupier.statistics.scores.Score",
}


def objects() -> Iterator[tuple[str, Any]]:
    """Yield every public class and function of the rooms, by the path at which it is defined."""
    for _, modules in reference.PAGES.values():
        for module in modules:
            yield from ((f"{value.__module__}.{value.__qualname__}", value) for value in reference.documented(module).values())


def methods(owner: type) -> Iterator[str]:
    """Yield the paths of a class's public methods and properties, those of our own bases, too; one that only overrides has its
    base's words."""
    for place in (base for base in owner.__mro__ if base.__module__.startswith("croupier.")):
        for name, member in vars(place).items():
            function = getattr(member, "__func__", member)
            is_method = inspect.isfunction(function) or isinstance(function, (property, cached_property))
            inherits = not function.__doc__ and any(hasattr(base, name) for base in place.__mro__[1:])
            if is_method and not name.startswith("_") and not inherits:
                yield f"{place.__module__}.{place.__qualname__}.{name}"


def needs_example(path: str, value: Any) -> bool:
    """Whether a class or function is one that a reader calls: no error, no protocol, no server."""
    shape = inspect.isclass(value) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False))
    return not shape and not path.startswith(NEEDS_NO_EXAMPLE)


def complaints(path: str, checks: set[str]) -> list[str]:
    """Return what numpydoc finds wrong, of what has to be right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Guarantee" is a section of ours
        found = validate(path)["errors"]
    return [f"{path}: {code} {message}" for code, message in found if code in checks]


@cache
def all_complaints() -> dict[str, list[str]]:
    """Return the complaints about every public name and method, by its path."""
    found = {}
    for path, value in objects():
        found[path] = complaints(path, CHECKS if needs_example(path, value) else CHECKS - {"EX01"})
        for method in set(methods(value)) - set(found) if inspect.isclass(value) else ():
            found[method] = complaints(method, CHECKS - {"EX01"})
    return found


def test_every_public_name_is_documented():
    new = [line for path, lines in all_complaints().items() if path not in TO_DO for line in lines]
    assert not new, "\n" + "\n".join(new)


def test_names_that_comply_are_no_longer_listed():
    assert not sorted(path for path in TO_DO if not all_complaints().get(path)), "take these out of TO_DO"


def test_names_of_the_top_are_in_a_room():
    listed = {id(value) for _, value in objects()}
    own = {name for name in croupier.__all__ if not inspect.ismodule(getattr(croupier, name))}
    assert all(id(getattr(croupier, name)) in listed for name in own)
