"""The page: swipe between the dates, move the threshold, click a polygon, take the files away.

- `server` starts it, `app` puts it together, `settings` say how, `service` holds what routes share.
- `http` takes requests: who asks, what is taken in, what is answered.
- `jobs` computes them: a folder for each, a queue, and one confined process for each task.
- `view` draws what a job left behind. None of it loads the model.
- `door` is the only place where a raster that is not ours is opened.
"""
