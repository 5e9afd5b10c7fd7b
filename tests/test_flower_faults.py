"""The strategy against a grid whose nodes fail, vanish, come late, stay silent or repeat themselves on cue."""

import fcntl
import itertools

import numpy as np
import pytest

from fadas.runs.run_reader import read_run

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.common.constant import ErrorCode

import fadas
from fadas.algorithms.privacy import Private
from fadas.core.ledger import Schedule
from fadas.errors import ConfigError
from fadas.flower.journal import Journal
from fadas.runs import checkpoint, lock
from helpers.flower import (
    INITIAL,
    NAN,
    ONE,
    THREE,
    TWO,
    Node,
    answer_error,
    answer_records,
    answer_trained,
    find_lines,
    stay_silent,
    stop_server_after,
)
from helpers.folders import read_files
from helpers.processes import hold_lock


def test_a_reply_with_an_error_frees_the_slot(play):
    play({ONE: Node(), TWO: Node(answer_error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "disk full"))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert (play.last["dropped"], play.last["expired"], play.last["refused"]) == (failed, 0, {})
    assert len(find_lines(play.log, "ended without an update", "error 2", "disk full")) == failed


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE])
def test_an_expired_message_frees_the_slot(play, code):
    play({ONE: Node(), TWO: Node(answer_error(code))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert (play.last["dropped"], play.last["expired"]) == (0, failed)
    assert len(find_lines(play.log, "ended without an update", "expired")) == failed


def test_a_node_that_never_answers_keeps_its_slot_until_the_deadline_only(play):
    play({ONE: Node(), TWO: Node(stay_silent)}, concurrency=1, deadline=7.0)
    waits = [end - begin for (begin, node), (end, _) in itertools.pairwise(play.grid.pushed) if node == TWO]
    assert len(waits) > 0
    assert all(7.0 < seconds < 7.5 for seconds in waits)
    assert (play.last["dropped"], play.last["expired"]) == (0, len(waits))
    assert len(find_lines(play.log, "ended without an update", "expired after 7 s")) == len(waits)


def test_a_node_that_vanishes_in_mid_job_is_dropped_when_flower_says_so(play):
    gone = Node(latency=3.0, spans=((0.0, 2.0),), farewell=answer_error(ErrorCode.NODE_UNAVAILABLE, "no heartbeat"))
    play({ONE: Node(latency=9.0), TWO: gone, THREE: Node(latency=9.0)})
    assert play.grid.times(TWO) == [0.0]
    assert (play.last["dropped"], play.last["expired"]) == (1, 0)
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1
    assert len(find_lines(play.log, "client=1", "error 5", "no heartbeat")) == 1


def test_a_node_that_vanishes_in_mid_job_without_a_word_is_given_up_at_the_deadline(play):
    play({ONE: Node(), TWO: Node(latency=3.0, spans=((0.0, 2.0),))}, steps=40)
    assert play.grid.times(TWO) == [0.0]
    assert (play.last["dropped"], play.last["expired"]) == (0, 1)
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1


def test_an_unreachable_node_gets_no_more_work_before_it_is_met_again(play):
    """Flower has given up on it, but has not yet struck it off its list: for this moment it must not be chosen."""
    unreachable = Node(answer_error(ErrorCode.NODE_UNAVAILABLE), latency=0.1)
    play({ONE: unreachable, TWO: Node(latency=0.1)}, concurrency=1, poll=0.1, steps=60)
    looks = 1 + play.clock.now  # one per second
    assert 1 < len(play.grid.times(ONE)) <= looks
    assert play.last["dropped"] > 1


def test_a_node_that_vanishes_while_idle_gets_no_more_work(play):
    play(
        {ONE: Node(), TWO: Node(spans=((0.0, 20.0),), farewell=answer_trained), THREE: Node()}, concurrency=1, steps=60
    )
    assert len(play.grid.times(TWO)) > 1
    assert max(play.grid.times(TWO)) < 20.0
    assert play.clock.now > 60.0
    assert len(find_lines(play.log, "node 12 (client 1) is gone")) == 1
    assert play.last["dropped"] == play.last["expired"] == 0


@pytest.mark.parametrize("untaken", [(), ("",)], ids=["as in memory", "as over HTTP"])
def test_messages_that_the_grid_does_not_take_are_dropped_jobs(play, untaken):
    """Two nodes leave between two looks at who is there: no id comes back for what is sent to them."""
    short = Node(latency=0.2, spans=((0.0, 1.5), (20.0, float("inf"))), farewell=answer_trained)
    play({ONE: short, TWO: short, THREE: Node(latency=0.3)}, untaken=untaken, poll=0.1, steps=150)
    assert play.last["dropped"] >= 2
    assert len(find_lines(play.log, "not sent")) == play.last["dropped"]
    assert play.grid.most == 2
    for id in (ONE, TWO):
        assert not [t for t in play.grid.times(id) if 1.5 < t < 20.0]
        assert [t for t in play.grid.times(id) if t > 20.0]


def test_a_node_that_joins_late_gets_work_from_then_on(play):
    play({ONE: Node(), TWO: Node(spans=((6.0, float("inf")),))}, steps=20)
    assert 6.0 <= min(play.grid.times(TWO)) < 7.5
    assert play.grid.most == 2
    assert {job["client"] for record in play.records for job in record["jobs"]} == {0, 1}
    assert len(find_lines(play.log, "node 12 joins as client 1")) == 1


def test_a_node_that_comes_back_is_the_client_it_was(play):
    play({ONE: Node(), TWO: Node(spans=((0.0, 4.0), (10.0, float("inf"))))}, steps=30, deadline=5.0)
    assert len(find_lines(play.log, "node 12 joins as client 1")) == 2
    assert [t for t in play.grid.times(TWO) if t > 10.0]


@pytest.mark.parametrize("algorithm", [fadas.FedBuff(), fadas.FedAvg()], ids=["asynchronous", "in rounds"])
def test_fewer_nodes_than_slots_are_enough(play, algorithm):
    play({ONE: Node(), TWO: Node(latency=2.0)}, concurrency=5, buffer=4, algorithm=algorithm, steps=6)
    assert play.grid.most == 2
    assert play.last["dropped"] == play.last["expired"] == 0


def test_a_round_ends_when_a_node_vanishes_while_all_others_are_busy(play):
    gone = Node(latency=1.0, spans=((0.0, 0.5),), farewell=answer_error(ErrorCode.NODE_UNAVAILABLE))
    nodes = {ONE: Node(latency=5.0), TWO: gone, THREE: Node(latency=5.0)}
    play(nodes, concurrency=3, buffer=3, algorithm=fadas.FedAvg(), steps=4, timeout=100)
    assert play.last["dropped"] == 1


def test_without_nodes_the_run_waits_and_says_so_and_gives_up(play):
    with pytest.raises(RuntimeError, match="no node was connected for 45 s: giving up"):
        play({}, patience=45.0)
    assert 45.0 < play.clock.now < 46.0
    waits = find_lines(play.log, "no node is connected: waiting")
    assert waits[0].endswith("(0 of 45 s)")
    assert len(waits) == 5


def test_the_patience_begins_anew_whenever_the_last_node_leaves(play):
    node = Node(spans=((40.0, 50.5), (90.0, float("inf"))))
    play({ONE: node}, patience=45.0, steps=20)
    assert play.clock.now > 95.0
    assert find_lines(play.log, "no node is connected")


def repeated(delay):
    """The reply, and once more after a while."""

    def answer(message):
        (reply,) = answer_trained(message)
        (again,) = answer_trained(message)
        again.delay = delay
        return [reply, again]

    return answer


@pytest.mark.parametrize("delay", [0.0, 2.5], ids=["together", "later"])
def test_a_reply_that_comes_twice_is_applied_once(play, delay):
    play({ONE: Node(repeated(delay)), TWO: Node(latency=1.5)}, steps=20)
    repeats = play.last["refused"]["already reported"]
    mine = sum(job["client"] == 0 for record in play.records for job in record["jobs"])
    assert mine - 4 <= repeats <= mine
    assert len(find_lines(play.log, "a reply of node 11 is refused: already reported")) >= repeats
    assert play.grid.most == 2


def test_a_reply_to_a_job_that_was_given_up_is_not_applied(play):
    play({ONE: Node(latency=9.0), TWO: Node()}, deadline=5.0, steps=40)
    assert {job["client"] for record in play.records for job in record["jobs"]} == {1}
    assert play.last["expired"] >= 6
    assert play.last["refused"]["expired"] >= 5
    assert find_lines(play.log, "a reply of node 11 is refused: expired")


def test_a_reply_to_what_was_never_asked_is_not_applied(play):
    def unasked(message):
        (reply,), (other,) = answer_trained(message), answer_trained(message)
        other.metadata.__dict__["_reply_to_message_id"] = "another run's"
        return [other, reply]

    play({ONE: Node(unasked), TWO: Node()})
    assert play.last["refused"]["unknown job"] > 0
    assert find_lines(play.log, "a reply of node 11 is refused: unknown job")


WHOLE = ArrayRecord({"w": Array(INITIAL)})
GARBAGE = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"")
MALFORMED = {
    "no arrays": answer_records(metrics=MetricRecord({"num-examples": 1})),
    "another array": answer_records(arrays=ArrayRecord({"v": Array(INITIAL)})),
    "another shape": answer_records(arrays=ArrayRecord({"w": Array(np.zeros(3, np.float32))})),
    "two records": answer_records(arrays=WHOLE, more=WHOLE),
    "complex numbers": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(np.complex64))})),
    "whole numbers": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(np.int64))})),
    "truths": answer_records(arrays=ArrayRecord({"w": Array(INITIAL > 0)})),
    "words": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype(str))})),
    "dates": answer_records(arrays=ArrayRecord({"w": Array(INITIAL.astype("datetime64[D]"))})),
    "no bytes": answer_records(arrays=ArrayRecord({"w": GARBAGE})),
    "infinitely many examples": answer_records(arrays=WHOLE, metrics=MetricRecord({"num-examples": float("inf")})),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_frees_the_slot(play, name):
    play({ONE: Node(), TWO: Node(MALFORMED[name])}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert play.last["dropped"] == len(find_lines(play.log, "ended without an update", "malformed")) == failed


def test_an_update_that_is_refused_frees_the_slot(play):
    play({ONE: Node(), TWO: Node(answer_records(arrays=NAN))}, concurrency=1)
    failed = play.grid.heard.count(TWO)
    assert failed > 0
    assert play.last["refused"] == {"not finite": failed}
    assert len(find_lines(play.log, "is refused: not finite")) == failed


def test_a_node_that_fails_at_once_does_not_end_a_run_whose_other_nodes_are_slow(play):
    play({ONE: Node(latency=300.0), TWO: Node(answer_error(ErrorCode.UNKNOWN), latency=0.1)}, steps=3, deadline=600.0)
    assert play.last["dropped"] > Schedule(2, 1).patience


def test_a_run_whose_nodes_all_fail_is_given_up(play):
    with pytest.raises(RuntimeError, match="none of the last 140 jobs gave an update"):
        play({ONE: Node(answer_error(ErrorCode.UNKNOWN)), TWO: Node(answer_error(ErrorCode.UNKNOWN))})


def test_a_run_in_which_no_update_is_accepted_any_more_has_diverged_and_can_go_on_all_the_same(play, tmp_path):
    replies = itertools.count()

    def answer(message):
        count = next(replies)
        if count % 10 == 9:  # nodes that fail now and then do not hide it
            return answer_error(ErrorCode.UNKNOWN)(message)
        return answer_trained(message) if count < 8 else answer_records(arrays=NAN)(message)

    with pytest.raises(
        fadas.Diverged, match=r"^none of the last 141 updates was accepted \(refused so far: not finite: 141\)$"
    ):
        play({ONE: Node(answer), TWO: Node(answer)})
    run = read_run(tmp_path / "fadas-0")
    assert (run.diverged.split()[0], run.summary["step"], len(run.records)) == ("none", 8, 8)
    assert "accuracy" not in run.summary
    assert not (run.folder / "model.safetensors").exists()
    assert find_lines(play.log, "without its summary.json it would go on")
    before = {path: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.raises(ConfigError, match="holds a run that diverged: choose another folder"):
        play({ONE: Node()})
    assert before == {path: path.read_bytes() for path in run.folder.iterdir()}
    (run.folder / "summary.json").unlink()
    play({ONE: Node()})
    assert play.records[:8] == run.records
    assert read_run(run.folder).diverged is None


def test_a_step_that_gives_a_model_which_is_not_finite_is_the_last(play, tmp_path):
    huge = ArrayRecord({"w": Array(np.full(2, 1.5e38, np.float32))})
    with pytest.raises(fadas.Diverged, match="step 2 gave a model that is not finite"):
        play({ONE: Node(answer_records(arrays=huge))}, reply="delta")
    run = read_run(tmp_path / "fadas-0")
    assert (run.diverged, run.summary["step"]) == ("step 2 gave a model that is not finite", 1)


@pytest.mark.parametrize("damaged", [False, True])
def test_an_interrupted_run_goes_on_for_longer_and_a_finished_one_is_left_alone(play, tmp_path, damaged):
    answer = stop_server_after(11)
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(answer), TWO: Node(answer)}, steps=12, buffer=2)
    folder = tmp_path / "fadas-0"
    before = (folder / "metrics.jsonl").read_bytes()
    assert before.count(b"\n") > 2
    if damaged:
        newest = max(folder.glob("checkpoint-*.ckpt"))
        newest.write_bytes(newest.read_bytes()[:-1])
    play({ONE: Node(), TWO: Node()}, steps=20, buffer=2)  # which checks that each recorded update is applied once
    after = (folder / "metrics.jsonl").read_bytes()
    assert after.startswith(before) or damaged
    assert (
        bool(find_lines(play.log, newest.name, "cannot be used"))
        if damaged
        else not find_lines(play.log, "cannot be used")
    )
    assert "steps = 20" in (folder / "config.toml").read_text()
    with pytest.raises(ConfigError, match="holds a finished run"):
        play({ONE: Node()}, steps=30)
    assert (folder / "metrics.jsonl").read_bytes() == after


def test_a_damaged_checkpoint_does_not_outlive_the_run_going_on_before_it(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    newest = checkpoint.found(tmp_path / "fadas-0")[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(0))})
    assert newest not in checkpoint.found(tmp_path / "fadas-0"), "it would pass for newer than those to come"
    play({ONE: Node()})


def test_a_step_with_differential_privacy_is_not_done_again_with_the_same_noise(play, tmp_path):
    private = fadas.Algorithm(Private(10.0, 1e-6))
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, algorithm=private)
    newest = checkpoint.found(tmp_path / "fadas-0")[0]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1])
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="differential privacy, whose last checkpoint is damaged: choose another"):
        play({ONE: Node()}, algorithm=private)
    assert read_files(tmp_path / "fadas-0") == before
    newest.write_bytes(whole)
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(3))}, algorithm=private)


def test_an_interrupted_run_is_not_ended_by_a_start_with_fewer_rounds_than_it_has_done(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, concurrency=1)
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="holds an interrupted run of 8 steps already, and 7 are asked for"):
        play({ONE: Node()}, concurrency=1, steps=7)
    assert read_files(tmp_path / "fadas-0") == before
    play({ONE: Node()}, concurrency=1, steps=8)
    assert not play.grid.pushed


def test_what_another_process_has_done_by_the_time_it_ends_is_gone_on_with(play, tmp_path, monkeypatch):
    folder = tmp_path / "fadas-0"

    def fill(content):
        for path in folder.iterdir():
            path.unlink() if path.name not in content else None
        for name, bytes in content.items():
            (folder / name).write_bytes(bytes)

    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, steps=30)
    earlier = read_files(folder)
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8)), TWO: Node()}, steps=30)
    later = read_files(folder)
    fill(earlier)
    last, take = [later], lock.acquire

    def late(folder):
        if last:
            fill(last.pop())
        take(folder)

    monkeypatch.setattr(lock, "acquire", late)
    play({ONE: Node()}, steps=30)
    assert (folder / "metrics.jsonl").read_bytes().startswith(later["metrics.jsonl"])


def test_a_start_that_is_refused_keeps_no_lock(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    for path in checkpoint.found(tmp_path / "fadas-0"):
        path.write_bytes(b"")
    with pytest.raises(ConfigError, match="none of its checkpoints can be used"):
        play({ONE: Node()})
    with (tmp_path / "fadas-0" / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_run_that_another_server_finishes_before_the_lock_is_ours_is_left_alone(play, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    claim = Journal._claim

    def late(journal):
        claim(journal)
        (journal.folder / "summary.json").write_text("{}")

    monkeypatch.setattr(Journal, "_claim", late)
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match="holds a finished run"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == {**before, "summary.json": b"{}"}


@pytest.mark.parametrize(("jobs", "buffered"), [(30, 1), (32, 0)], ids=["between two steps", "after a step"])
def test_a_run_that_goes_on_has_lost_neither_its_counters_nor_its_time(play, tmp_path, jobs, buffered):
    turns = itertools.cycle([answer_error(ErrorCode.UNKNOWN), answer_records(arrays=NAN), stay_silent, answer_trained])
    faulty = Node(lambda message: next(turns)(message))
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(jobs)), TWO: faulty}, steps=30, buffer=2, deadline=5.0)
    (before,) = play.read()[-1:]
    assert min(before["dropped"], before["expired"], before["refused"]["not finite"], before["time"]) > 0
    newest = max((tmp_path / "fadas-0").glob("checkpoint-*.ckpt"))
    assert int(newest.stem.removeprefix("checkpoint-")) - before["updates"] == buffered
    play({TWO: Node()}, steps=30, buffer=2)
    lost = [(r["dropped"], r["expired"], r["refused"]) for r in play.records[before["step"] :]]
    assert all(counts == lost[0] for counts in lost), "all are well now"
    assert lost[0][0] >= before["dropped"]
    assert lost[0][1] >= before["expired"]
    assert lost[0][2]["not finite"] >= before["refused"]["not finite"]
    times = [record["time"] for record in play.records]
    assert times == sorted(times)
    for record in play.records:
        assert all(0 <= job["start"] < job["end"] <= record["time"] for job in record["jobs"])


class Own:
    """A part of the user's own, which does not say what it is."""

    def __init__(self, scale):
        self.scale, self.something = scale, object()

    def __call__(self, state, step, updates, clients):
        return self.scale * sum(update.delta for update in updates) / len(updates), {}


OTHER_SETTINGS = {
    "another algorithm": ({"algorithm": fadas.FADAS()}, r"optimizer was 'SGD.*' and is 'AMSGrad\("),
    "another step size": ({"algorithm": fadas.FedBuff(eta=0.5)}, r"step_size was 'Constant\(eta=1.0\)' and is '.*0.5"),
    "an own part": ({"algorithm": fadas.Algorithm(Own(1.0))}, r"combine was 'Mean\(\)' and is \"Own\(\{'scale': 1.0"),
    "another reply": ({"reply": "delta"}, "task.reply was 'arrays' and is 'delta'"),
    "another model": (
        {"initial": np.zeros(3, np.float32)},
        "task.arrays was '2 trained, .*' and is '3 trained",
    ),
    "other names": ({"array": "v"}, "task.arrays was"),
    "another buffer": ({"buffer": 2}, "schedule.buffer was 1 and is 2"),
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_an_interrupted_run_is_neither_continued_nor_deleted_by_another(play, tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    before = read_files(tmp_path / "fadas-0")
    options, message = OTHER_SETTINGS[name]
    with pytest.raises(ConfigError, match=f"{message}.*: choose another folder, or move it away$"):
        play({ONE: Node()}, steps=30, **options)
    assert read_files(tmp_path / "fadas-0") == before
    assert not play.grid.pushed
    play({ONE: Node()})


def test_a_part_of_the_users_own_is_known_again(play):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))}, algorithm=fadas.Algorithm(Own(1.0)))
    with pytest.raises(ConfigError, match=r"'scale': 1.0, .* and is .*'scale': 2.0"):
        play({ONE: Node()}, algorithm=fadas.Algorithm(Own(2.0)))
    play({ONE: Node()}, algorithm=fadas.Algorithm(Own(1.0)))


@pytest.mark.parametrize("damage", ["checkpoint-*.ckpt", "metrics.jsonl", "config.toml"])
def test_an_interrupted_run_that_cannot_go_on_is_left_as_it_is(play, tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    for path in (tmp_path / "fadas-0").glob(damage):
        path.write_bytes(b"[" + path.read_bytes())
    before = read_files(tmp_path / "fadas-0")
    with pytest.raises(ConfigError, match=r"holds an interrupted run.*: choose another folder, or move it away"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == before


def test_a_folder_in_which_another_process_runs_is_left_to_it(play, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play({ONE: Node(stop_server_after(8))})
    before = read_files(tmp_path / "fadas-0")
    in_use = pytest.raises(ConfigError, match="fadas-0 is in use by another process: choose another folder")
    with hold_lock(tmp_path / "fadas-0"), in_use:
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == before
    play({ONE: Node()})


def test_a_folder_with_files_of_others_is_left_as_it_is(play, tmp_path):
    (tmp_path / "fadas-0").mkdir()
    (tmp_path / "fadas-0" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="fadas-0 holds something other than a run: choose another folder"):
        play({ONE: Node()})
    assert read_files(tmp_path / "fadas-0") == {"thesis.tex": b""}


def test_a_run_that_has_not_got_anywhere_may_begin_anew_with_other_settings(play):
    with pytest.raises(RuntimeError, match="no node was connected"):
        play({}, patience=5.0)
    play({ONE: Node()}, buffer=2)


def test_the_model_is_evaluated_every_k_steps_and_at_the_end(play):
    seen = {}

    def evaluate(step, arrays):
        seen[step] = arrays["w"].numpy().tolist()
        return MetricRecord({"accuracy": step / 10})

    play({ONE: Node(), TWO: Node()}, steps=8, evaluate=evaluate, eval_every=3)
    assert list(seen) == [0, 3, 6, 8]
    assert seen[0] == INITIAL.tolist()
    assert [r["metrics"] and r["metrics"]["accuracy"] for r in play.records] == [
        None,
        None,
        0.3,
        None,
        None,
        0.6,
        None,
        0.8,
    ]
