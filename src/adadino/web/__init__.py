"""The page: swipe between the dates, move the threshold, click a polygon, take the files away.

- `server` starts it, `app` puts it together, `settings` say how. `guard` and `connection` stand
  before everything.
- `jobs`: a folder for each (`records`, `store`), taken in turns (`manager`) by one process apart
  (`worker`), so that whatever happens to a job, the server goes on serving.
- What is shown is read from what a job left behind: `display` lays it out in zoom levels, `tiles`
  draws it, `change` cuts it at a threshold. None of them loads the model.
- `uploads`, `rasters` and `library` decide what comes in.
"""
