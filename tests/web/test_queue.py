"""The folder of jobs and whose turn it is, without a worker."""

from __future__ import annotations

import json

import pytest

from adadino.web.jobs.manager import Manager
from adadino.web.jobs.records import RESULT, Job, read_record
from adadino.web.jobs.store import JobGoneError, JobStore
from adadino.web.settings import Limits, Settings


def add(store, client="a", *, created=0.0, state="queued", **more):
    identity, draft = store.draft()
    job = Job(
        id=identity, name="j", client=client, model="m", before="b.tif", after="a.tif",
        before_name="b", after_name="a", source="upload", created=created, state=state, **more,
    )  # fmt: skip
    (draft / "before.tif").write_bytes(b"x" * 1000)
    return store.add(job, draft)


def manager(tmp_path, **limits):
    settings = Settings(jobs=tmp_path / "jobs", limits=Limits(**limits))
    return Manager(settings, JobStore(settings.jobs))


def test_jobs_survive_a_restart_and_half_uploads_do_not(tmp_path):
    store = JobStore(tmp_path)
    job = add(store, created=3)
    store.change(job.id, state="done", result={"change_fraction": 0.1})
    _, draft = store.draft()
    (tmp_path / ("x" * 22)).mkdir()
    (tmp_path / ("x" * 22) / "job.json").write_text('{"id": ')
    again = JobStore(tmp_path)
    assert again.all() == store.all()
    assert again.get(job.id).result == {"change_fraction": 0.1}
    assert not draft.exists()


@pytest.mark.parametrize("identity", ["", "..", "a" * 22, "../" + "a" * 19, "a" * 22 + "\n"])
def test_ids_that_are_none(tmp_path, identity):
    with pytest.raises(JobGoneError):
        JobStore(tmp_path).get(identity)


def test_a_record_of_another_folder_is_not_taken(tmp_path):
    store = JobStore(tmp_path)
    job = add(store)
    other = tmp_path / ("z" * 22)
    other.mkdir()
    (other / "job.json").write_text((tmp_path / job.id / "job.json").read_text())
    assert read_record(other) is None


def test_jobs_go_when_their_days_are_over_and_not_before(tmp_path):
    store = JobStore(tmp_path)
    day = 86400.0
    old = add(store, created=1 * day, state="done")
    young = add(store, created=9 * day, state="done")
    running = add(store, created=0, state="running")
    assert store.total_bytes() > 3000
    assert store.expire(days=5, now=10 * day) == [old.id]
    assert [job.id for job in store.all()] == [young.id, running.id]
    assert not (tmp_path / old.id).exists()
    assert 2000 < store.total_bytes() < 6000


def test_clients_take_turns(tmp_path):
    found = manager(tmp_path)
    many = [add(found.store, "many", created=n) for n in range(3)]
    one = add(found.store, "one", created=10)
    assert found.place(many[0].id) == 0
    assert found.place(one.id) == 1
    assert [found.place(job.id) for job in many[1:]] == [2, 3]
    found.served["many"] = 100.0
    assert found.place(one.id) == 0


def test_what_ran_when_the_server_died_is_taken_up(tmp_path):
    store = JobStore(tmp_path / "jobs")
    lost = add(store, state="running", attempts=1)
    hopeless = add(store, state="running", attempts=3)
    ready = add(store, state="running", attempts=1)
    (store.path(ready.id) / RESULT).write_text(json.dumps({"change_fraction": 0.1}))
    found = manager(tmp_path).store
    assert found.get(lost.id).state == "queued"
    assert found.get(hopeless.id).state == "failed"
    assert "3 times" in (found.get(hopeless.id).error or "")
    assert found.get(ready.id).state == "done"


def test_a_waiting_job_is_cancelled_and_its_files_go(tmp_path):
    found = manager(tmp_path)
    job = add(found.store)
    assert found.cancel(job.id).state == "cancelled"
    assert [path.name for path in found.store.path(job.id).iterdir()] == ["job.json"]
    assert found.cancel(job.id).state == "cancelled"  # again: nothing happens
