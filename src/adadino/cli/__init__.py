"""The command line: one verb, one function, heavy imports inside the verb."""
