"""The page."""

from __future__ import annotations

from ..protocol import Results


def page(results: Results) -> str:
    """The stored figures as tables."""
    parts = [f"# One private round\n\ncroupier {results['version']}, Python {results['python']}, numpy {results['numpy']}.\n"]
    titles = {
        "noise_and_bits": "Noise (relative to the central Gaussian mechanism) and bits per coordinate, delta = 1e-6, replace-one",
        "throughput": "Throughput of a counting round with secure randomness, compiled, one thread",
        "planning": "Planning time",
    }
    for key, title in titles.items():
        rows = results[key]
        parts.append(f"## {title}\n")
        parts.append("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        parts += ["| " + " | ".join(_figure(value) for value in row.values()) + " |" for row in rows]
        parts.append("")
    return "\n".join(parts)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
