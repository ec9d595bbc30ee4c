"""`python -m adadino`."""

from adadino.cli.app import main

main()
