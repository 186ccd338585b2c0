"""`python -m raindrop` is `raindrop`."""

from raindrop.cli.app import main

main()
