"""The commands. Bad arguments end with exit code 2 and one line on what to do."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .. import __version__
from ..files import written_whole
from ..flower.analyzer import MaskAnalyzer, MaskServer
from ..privacy import ArgumentError, NoCertificateError, SumPlan, plan_lots, plan_sum
from ..privacy._statements import crowd, round_up
from ..report import central, local
from ..report._tables import compare_table, lots_table, plan_table, proof_table
from ..validation import Found, how_to_install
from .audit import audit_plan
from .demo import demo
from .doctor import doctor
from .fit import fit
from .join import join
from .model import evaluate, predict, report, show
from .processes import LOOPBACK
from .reproduce import reproduce
from .serve import app as serve
from .tables import choose, describe, example, schema, table, words
from .terminal import Stopped, check_output, messages, named_as_options, say

# What typer raises for a bad command line, by whichever name: TyperException, or click's ClickException before typer 0.29.
_BadCommandLineError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__base__ is Exception)

app = typer.Typer(
    name="croupier",
    help="Train models and compute statistics on data that stays with its owners, with proven privacy.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Epsilon = Annotated[float, typer.Option(help="Privacy loss epsilon of a user over all rounds.")]
Delta = Annotated[float, typer.Option(help="Probability delta of a larger loss; well below 1 / users.")]
Users = Annotated[int, typer.Option(help="Users in one round; all users with --lots.")]
Dim = Annotated[int, typer.Option(help="Coordinates of a user's vector.")]
Norm = Annotated[float, typer.Option(help="Public bound on the l2 norm of a user's vector.")]
Honest = Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")]
Rounds = Annotated[int, typer.Option(help="Rounds that each user takes part in.")]
Neighbours = Annotated[str, typer.Option(help="replace-one (the paper's) or zero-out.")]
Calibration = Annotated[str, typer.Option(help="tight, paper or paper-scaled.")]
MaxInflation = Annotated[float, typer.Option(help="Noise allowed relative to the central Gaussian mechanism.")]
Diameter = Annotated[
    float | None, typer.Option(help="Proved bound on the distance between two users' vectors; default: twice the norm.")
]
MaxBits = Annotated[int | None, typer.Option(help="Most bits per coordinate; the plan has the least noise that fits in them.")]
Lots = Annotated[int | None, typer.Option(help="Number of rounds; each user takes part in one, drawn by secret lot.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback(invoke_without_command=True)
def croupier(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_PLANNED = ("epsilon", "delta", "users", "dim", "norm", "honest", "rounds", "neighbours", "calibration", "max_inflation")


@named_as_options(*_PLANNED, "max_bits", "lots", "diameter")
def plan(
    epsilon: Epsilon,
    delta: Delta,
    users: Users,
    dim: Dim,
    norm: Norm = 1.0,
    honest: Honest = 1.0,
    rounds: Rounds = 1,
    neighbours: Neighbours = "replace-one",
    calibration: Calibration = "tight",
    max_inflation: MaxInflation = 1.05,
    max_bits: MaxBits = None,
    lots: Lots = None,
    diameter: Diameter = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show paper, tight, central and local calibrations side by side.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Prove the plan in ball arithmetic; --json prints the certificate.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the certificate of --prove (JSON).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a private vector sum: what each user sends, how noisy the sum is, and what is guaranteed."""
    request: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "users": users,
        "dim": dim,
        "norm": norm,
        "honest": honest,
        "rounds": rounds,
        "neighbours": neighbours,
        "max_inflation": max_inflation,
        "max_bits": max_bits,
        "diameter": diameter,
    }
    if output is not None and not prove:
        raise ArgumentError("-o", Found("needs --prove"), "left out without it", "Add --prove: -o is the file for its certificate.")
    if prove and (compare or lots is not None):
        found, remedy = Found("goes with neither --compare nor --lots"), "It proves a single plan: drop the other option."
        raise ArgumentError("--prove", found, "given without them", remedy)
    if lots is not None:
        _plan_with_lots(request, lots, calibration, compare, as_json)
        return
    if compare:
        _compare(request, as_json)
        return
    if output is not None:
        check_output(output, force)
    chosen_plan = plan_sum(**request, calibration=calibration)
    if prove:
        _prove(chosen_plan, output, as_json)
    elif as_json:
        typer.echo(json.dumps(chosen_plan.to_dict(), indent=2))
    else:
        Console().print(plan_table(chosen_plan))


def _prove(proposed: SumPlan, output: Path | None, as_json: bool) -> None:
    """Print a plan with the enclosures that prove it, or its certificate, or write the certificate down."""
    proof = proposed.prove()
    if output is not None:
        with written_whole(output) as part:
            part.write_text(proof.to_json() + "\n", encoding="utf-8")
    if as_json:
        typer.echo(proof.to_json())
        return
    console = Console()
    console.print(plan_table(proposed))
    console.print(proof_table(proof))
    if output is not None:
        say(messages(), f"Certificate: {output}. To check it without Croupier: docs/certificates.md.", "dim")


def _plan_with_lots(request: dict[str, Any], lots: int, calibration: str, compare: bool, as_json: bool) -> None:
    rounds = request.pop("rounds")
    if rounds != 1:
        raise ArgumentError("rounds", rounds, "1 with --lots", "Each user takes part once; --lots is the number of rounds.")
    if calibration != "tight" or compare:
        given = "--compare" if compare else f"--calibration {calibration}"
        raise ArgumentError("lots", lots, f"left out with {given}", "Secret lots are proved for the tight calibration only.")
    if (diameter := request.pop("diameter")) is not None:
        raise ArgumentError(
            "diameter", diameter, "left out with --lots", "With lots a vector is compared with zero, so its norm is what counts."
        )
    chosen_plan = plan_lots(**request, rounds=lots)
    if as_json:
        typer.echo(json.dumps(chosen_plan.to_dict(), indent=2))
    else:
        Console().print(lots_table(chosen_plan))


def _compare(request: dict[str, Any], as_json: bool) -> None:
    tight, plain = plan_sum(**request), plan_sum(**request, rotation=None)
    try:
        paper: SumPlan | str = plan_sum(**request | {"max_bits": None}, calibration="paper")
    except ArgumentError as error:  # the paper's theorems cover less; say why and go on
        paper = f"not covered: {error.name} must be {error.allowed}"
    baselines = [central(tight), local(tight)]
    if as_json:
        figures: dict[str, Any] = {"tight": tight.to_dict(), "not rotated": plain.to_dict()}
        figures["paper"] = paper.to_dict() if isinstance(paper, SumPlan) else {"refused": paper}
        for name, base in zip(("central", "local"), baselines, strict=True):
            figures[name] = {
                "mechanism": base.name,
                "noise_std": base.noise_std,
                "inflation": base.noise_std / tight.central_noise_std,
                "bits_per_coordinate": base.bits_per_coordinate,
                "neighbours": tight.neighbours,
            }
        typer.echo(json.dumps(figures, indent=2))
        return
    console = Console()
    plans: dict[str, SumPlan | str] = {"shuffle (tight)": tight}
    if plain != tight:
        plans = {"shuffle, rotated": tight, "shuffle, not rotated": plain}
    console.print(compare_table(plans | {"shuffle (paper)": paper}, baselines, tight.central_noise_std))
    console.print(
        f"epsilon {round_up(tight.epsilon)}, delta {round_up(tight.delta)}, {tight.neighbours} neighbours, {tight.users:,} users, "
        f"{tight.dim:,} coordinates, {tight.rounds:,} round(s), {crowd(tight.honest, 'users')} honest; noise is the standard "
        f"deviation per coordinate of the sum in one round; bits are per coordinate before a rotation pads the vector.",
        style="dim",
    )


def mask_analyzer(
    folder: Annotated[Path, typer.Option("--dir", help="Folder for its key and the list of rounds it has opened. Back it up.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8443,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is a password that the Flower server must present.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Speak plain http behind a proxy that terminates TLS.")
    ] = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="Print the public key that devices need, and exit.")] = False,
) -> None:
    """Open sums of masks for a Flower server run by another operator: each round once, and only with all of its blanks."""
    analyzer = MaskAnalyzer(folder)
    if print_key:
        typer.echo(analyzer.public_key.hex())
        return
    if (certificate is None) != (private_key is None) or (certificate is None and not behind_proxy and host not in LOOPBACK):
        remedy = "Use --certificate and --private-key, or --behind-proxy."
        raise ArgumentError("--certificate", certificate, f"given with --private-key to listen on {host}", remedy)
    token = None if token_file is None else (token_file.read_text().split() or [""])[0]
    if token is None and host not in LOOPBACK:
        remedy = "Anyone who can send requests can use up a round. Write a long random password to a file and tell its operator."
        raise ArgumentError("--token-file", token_file, f"given to listen on {host}", remedy)
    with MaskServer(analyzer, (host, port), token=token, certificate=certificate, key=private_key) as server:
        scheme = "http" if certificate is None else "https"
        say(messages(), f"croupier: mask analyzer on {scheme}://{host}:{server.server_address[1]}")
        say(messages(), f"croupier: devices need this key: {analyzer.public_key.hex()}")
        say(
            messages(),
            "croupier: the promise holds if you do not run the Flower server yourself and do not share data with its operator.",
        )
        server.serve_forever()


# In the order in which a new user needs them, each with the line that `croupier --help` has room for.
_COMMANDS: dict[str, tuple[Any, str]] = {
    "demo": (demo, "Train on 261 807 real flights, and compare methods."),
    "example": (example, "Write a synthetic table to try things out."),
    "schema": (schema, "Draft a schema file from a PUBLIC sample."),
    "describe": (describe, "Describe all columns privately, and write a schema."),
    "words": (words, "Find texts that many people have."),
    "table": (table, "Count people by several columns."),
    "fit": (fit, "Train a model on people's records, privately."),
    "predict": (predict, "Predict for every row of a file."),
    "evaluate": (evaluate, "Score a model, with noise or exactly."),
    "choose": (choose, "Choose the best of several models, privately."),
    "show": (show, "Explain a model or an account in plain words."),
    "report": (report, "Write a model's report as one HTML file."),
    "plan": (plan, "Plan a private sum: bits, noise and proof."),
    "audit": (audit_plan, "Try to refute the guarantees."),
    "join": (join, "Take part in tasks from this machine."),
    "doctor": (doctor, "Check a running deployment from outside."),
    "mask-analyzer": (mask_analyzer, "Run the second party of a Flower server."),
    "reproduce": (reproduce, "Rerun the benchmarks behind the evidence page."),
}
for name, (command, line) in _COMMANDS.items():
    app.command(name=name, short_help=line)(command)
app.add_typer(serve, name="serve", short_help="Run a server, and manage its tasks, keys and people.")

_FILE_REMEDIES = {errno.ENOENT: "Check the path.", errno.ENOSPC: "Free some space.", errno.EISDIR: "Name a file."}


def main() -> None:
    """Entry point: turns every refusal into one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except (ArgumentError, NoCertificateError) as error:
        said = str(error).replace(" = None is not allowed: it must be given", " is required")
        _refuse(said.replace(" = None is not allowed:", " is missing;"))
    except _BadCommandLineError as error:
        _refuse_command_line(error)
    except ModuleNotFoundError as error:
        if error.name == "flint":
            _refuse(str(error))
        if error.name not in ("fastapi", "prometheus_client", "sqlalchemy", "starlette", "uvicorn"):
            raise
        _refuse(f"{error.name} is not installed. It comes with the extra `service`: {how_to_install('service')}")
    except FileExistsError as error:
        _refuse(f"{error.filename or 'output'} exists, and secrets never replace a file. Name a new one, or move that away.")
    except OSError as error:
        remedy = _FILE_REMEDIES.get(error.errno or 0, "Check that it can be read or written.")
        _refuse(f"{error.filename or 'output'}: {error.strerror or error}. {remedy}")
    except Stopped as stop:
        say(messages(), f"croupier: {stop}")
        sys.exit(stop.code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        typer.echo("croupier: stopped", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse_command_line(error: Any) -> None:
    """Name what was mistyped, and the help of the command it was typed for."""
    said = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands without one: its help, as for `croupier` alone
        typer.echo(said)
        sys.exit(0)
    if (option := getattr(error, "option_name", "")) and "No such option" in said:
        said = f"No such option: {option}.{_meant(option, error.possibilities or ())}"
    said += "" if said.endswith((".", "?")) else "."
    for problem in getattr(error.__context__, "errors", list)()[:1]:  # pydantic's, which tell the value apart from the text
        said += f" It is {problem['input']!r}."
    _refuse(f"{said} See croupier {_path(error.ctx)}--help.")


def _path(context: Any) -> str:
    """The command that was typed, whatever the program is called: "serve key "."""
    if context is None or context.parent is None:
        return ""
    return f"{_path(context.parent)}{context.info_name} "


def _meant(option: str, possibilities: Iterable[str]) -> str:
    """The options that somebody who mistyped one may have meant; the two dashes, which all have, make none alike."""
    names = get_close_matches(option.lstrip("-"), [name.lstrip("-") for name in possibilities], n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(f'--{name}' for name in names)}?" if names else ""


def _refuse(message: str) -> None:
    say(messages(), "croupier: " + " ".join(message.split()))
    sys.exit(2)
