"""Croupier's benchmarks: what is claimed, measured again.

    python -m benchmarks NAME [--out DIR] [--quick] [--redraw] ...     (python -m croupier.benchmarks where croupier is installed)
    python -m benchmarks evidence                                      the page that gathers them, docs/evidence.md
    python -m benchmarks audit                                         docs/audit.md: games, and other accountants

Every benchmark is a package of this name, and offers what `protocol.Benchmark` lists. Its modules are the same in all of them:

- `measuring`: measures, and returns figures that JSON can hold;
- `judging`: what follows from the figures, and whether it is what was asked for;
- `writing`: the figures in tables and words;
- `drawing`: the figures as a picture, where there is one.

Stored are the figures and the text in benchmarks/results, and the pictures in docs/evidence.
"""
