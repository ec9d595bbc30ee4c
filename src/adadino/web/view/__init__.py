"""What the page shows of a job.

- `display` lays a scene out in zoom levels; `mercator` finds the way to a basemap.
- `views` writes both dates as the model saw them; `tiles` draws pieces of them.
- `change` cuts the probability at a threshold, in a worker; `cut` is what the server keeps of it.
"""
