"""Mirrors a run to W&B or elsewhere; a run never depends on it."""
