"""`python -m raindrop` is `raindrop`."""

from raindrop.cli import main

main()
