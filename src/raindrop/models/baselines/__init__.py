"""Baselines: the models that Raindrop is compared with, one file each."""
