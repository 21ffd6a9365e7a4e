"""Inference: what each method does with the one log density of `lvgp.model`."""
