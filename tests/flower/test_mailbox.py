"""Messages under way: when they were sent, to whom, and how long their jobs are remembered."""

import pytest

pytest.importorskip("flwr")
from fadas.core.ledger import Job
from fadas.flower.mailbox import Mailbox


def test_mailbox_remembers_the_last_100000_jobs():
    mailbox = Mailbox()
    for number in range(100_000):
        mailbox.add(f"message {number}", Job(number, 0, 0), 11, 0.0)
        mailbox.remove(f"message {number}")
    assert mailbox.jobs["message 0"] == Job(0, 0, 0)
    mailbox.add("one more", Job(100_000, 0, 0), 11, 0.0)
    assert "message 0" not in mailbox.jobs
    assert mailbox.jobs["message 1"] == Job(1, 0, 0)
    assert len(mailbox.jobs) == 100_000


def test_reply_is_awaited_from_the_node_that_was_asked_until_it_is_removed():
    mailbox = Mailbox()
    mailbox.add("a", Job(0, 0, 0), 11, 5.0)
    mailbox.add("b", Job(1, 1, 0), 12, 7.0)
    assert (mailbox.awaited, mailbox.asked) == ([Job(0, 0, 0), Job(1, 1, 0)], {"a": 11, "b": 12})
    assert [mailbox.sent_before(moment) for moment in (5.0, 5.5, 7.5)] == [[], ["a"], ["a", "b"]]
    mailbox.postpone(2.0)
    assert mailbox.under_way == {"a": 7.0, "b": 9.0}
    assert mailbox.remove("a") == Job(0, 0, 0)
    assert (mailbox.awaited, mailbox.asked, mailbox.under_way) == ([Job(1, 1, 0)], {"b": 12}, {"b": 9.0})
    assert set(mailbox.jobs) == {"a", "b"}, "a late reply can still be explained"
