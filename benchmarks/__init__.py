"""Measurements. `make bench` runs them; each compares side by side, in one run, with the server in its own process."""
