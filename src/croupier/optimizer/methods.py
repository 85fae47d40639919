"""Which algorithm for which problem: the paper's Table 1, and the reason in words."""

from __future__ import annotations

from ..problem import Objective, Problem
from ..validation import ArgumentError, Found, one_of

METHODS = {
    "sequential": ("sgd", "acsa", "smoothed-acsa", "phased"),
    "full": ("gd", "acsa", "smoothed-acsa", "phased-gd"),
    "stream": ("acsa", "smoothed-acsa", "phased"),
}


def choose(problem: Objective, method: str, interactivity: str) -> tuple[str, str]:
    """Table 1: the method for this loss, and the reason in words."""
    if method != "auto":
        one_of("method", method, ("auto", *METHODS[interactivity]), f"These are the methods for {interactivity} interactivity.")
        if method == "acsa" and problem.smoothness is None:
            raise ArgumentError(
                "method",
                method,
                "'smoothed-acsa', 'sgd' or 'gd' for a nonsmooth loss",
                "AC-SA needs a smooth loss (Theorem 4.3).",
            )
        if method == "smoothed-acsa" and not isinstance(problem, Problem):
            raise ArgumentError(
                "method", method, "one that needs no prox for your own loss", "Use 'sgd', or 'acsa' if it is smooth."
            )
        if method.startswith("phased"):
            inner_method(problem, method, interactivity)
        if method.startswith("phased") and not problem.strong_convexity:
            raise ArgumentError("method", method, "used with a strongly convex problem", "Set l2 > 0, or use another method.")
        return method, "as asked"
    smooth, strong = problem.smoothness is not None, problem.strong_convexity > 0
    where = "pan-private by Theorem C.3," if interactivity == "stream" else "sequential"
    if interactivity == "full":
        if strong:
            return "phased-gd", "strongly convex, full interactivity (Theorem 4.9)"
        if smooth:
            return "acsa", "smooth and convex, full interactivity: accelerated, beyond Theorem 4.9"
        return "gd", "convex and nonsmooth, full interactivity (Theorem 4.9)"
    if strong:
        inner_method(problem, "phased", interactivity)
        return "phased", f"strongly convex, {where} (Theorem 4.8)"
    if smooth:
        return "acsa", f"smooth and convex, {where} (Theorem 4.3)"
    if isinstance(problem, Problem):
        return "smoothed-acsa", f"convex and nonsmooth, {where} (Theorem 4.7)"
    if interactivity == "stream":
        raise ArgumentError(
            "problem",
            Found("has a nonsmooth loss of your own"),
            "smooth, or a Problem whose prox is known",
            "State its smoothness.",
        )
    return "sgd", "convex and nonsmooth, no prox known, sequential (Theorem 4.1)"


def choose_practical(problem: Objective, method: str) -> tuple[str, str]:
    """The practical rule has steps for AC-SA, with or without smoothing."""
    smooth = problem.smoothness is not None
    one_of("method", method, ("auto", "acsa", "smoothed-acsa"), "rule='bound' has the other methods.")
    if not smooth and not isinstance(problem, Problem):
        raise ArgumentError("rule", "practical", "'bound' for your own nonsmooth loss", "Or state its smoothness.")
    if method == "acsa" and not smooth:
        raise ArgumentError("method", method, "'smoothed-acsa' for a nonsmooth loss", "AC-SA needs a smooth loss (Theorem 4.3).")
    if method == "smoothed-acsa" and not isinstance(problem, Problem):
        raise ArgumentError("method", method, "'acsa' for your own loss", "Its prox is not known.")
    if method != "auto":
        return method, "as asked, practical steps"
    return ("acsa" if smooth else "smoothed-acsa"), "practical steps: no bound on the loss"


def inner_method(problem: Objective, method: str, interactivity: str) -> str:
    """The algorithm of every phase of a strongly convex run."""
    if method == "phased-gd":
        return "gd"
    if problem.smoothness is not None:
        return "acsa"
    if isinstance(problem, Problem):
        return "smoothed-acsa"
    if interactivity == "stream":
        raise ArgumentError(
            "problem",
            Found("has a nonsmooth loss of your own"),
            "smooth, or a Problem whose prox is known",
            "State its smoothness.",
        )
    return "sgd"
