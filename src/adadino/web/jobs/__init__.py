"""Jobs: their records, their queue, and the processes that compute them.

- `records` is a job on disk, `store` the folder of all, `library` the images of `--data`.
- `manager` decides who is next; `estimates` says how long it takes.
- `worker` is a worker as the server sees it; `process` and `parent` start it. `tasks` is what it
  does after `sandbox` has confined it: `rasters` looks at an upload, `predict` runs the model.
- `adapt` makes a model of a judged map; `models` says which model a job uses.
- `reviews` are what people say of a result.
- `demo` is the job that the page opens on.
"""
