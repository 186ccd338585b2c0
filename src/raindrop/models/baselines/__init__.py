"""The models that Raindrop is compared with, one file each."""
