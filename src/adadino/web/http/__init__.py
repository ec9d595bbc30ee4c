"""Requests, in the order in which one passes these files.

- `connection` waits for no client for ever; `guard` lets in whom `identity` knows.
- `api`, `results` and `reviewing` are the routes of the page, `services` and `features` those of
  other programs. `schemas` and `standards` are what they answer, `problems` what they refuse.
- `intake` makes a job of a request: `body`, `uploads` and `options` read it, `quotas` keeps room.
- `ask` has a worker do what a request needs, through the queues of `heavy`.
- `metrics` counts.
"""
