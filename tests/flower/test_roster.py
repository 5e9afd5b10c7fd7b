"""The places of nodes."""

import pytest

pytest.importorskip("flwr")
from fadas.flower.roster import Roster


def test_a_newcomer_takes_the_place_of_the_one_that_has_been_away_longest():
    roster = Roster()

    def meet(*ids, busy=()):
        for client in sorted(roster.present):
            if roster.nodes[client] not in ids:
                roster.leave(client)
        admitted = roster.admit(set(ids), busy)
        for client in [c for c in roster.absent if roster.nodes[c] in ids]:
            roster.join(client)
        return admitted

    assert meet(1, 2, 3) == [0, 1, 2]
    assert meet(1, 2) == meet(1) == []
    assert meet(1, 7, busy=[2]) == [1], "client 2 still has a job"
    assert roster.nodes == [1, 7, 3]
    assert meet(1, 3, 7) == [], "it has kept its place"
    assert meet(1) == []
    again = Roster()
    again.restore(roster.nodes, roster.absent)
    assert again.absent == [1, 2, 0], "those that were away before the restart have been away longer"
    roster = again
    assert meet(1, 7, 9) == [2]
    assert meet(1, 7, 9, 3) == [3], "its place is taken, and nobody is away"
