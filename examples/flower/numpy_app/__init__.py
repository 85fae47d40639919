"""A Flower app whose updates leave devices as masked, noisy reports."""
