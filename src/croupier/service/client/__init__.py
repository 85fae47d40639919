"""A device that takes part: its policy, its budget, its memory of answers."""
