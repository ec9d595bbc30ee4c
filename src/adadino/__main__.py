"""`python -m adadino`."""

from adadino.cli.app import main

if __name__ == "__main__":  # processes that are spawned import this file again
    main()
