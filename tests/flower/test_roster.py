"""The places of nodes."""

import pytest

pytest.importorskip("flwr")
from fadas.flower.roster import Roster


def test_newcomer_takes_place_of_longest_absent_node():
    roster = Roster()

    def update_roster(*ids, busy=()):
        for client in sorted(roster.present):
            if roster.nodes[client] not in ids:
                roster.leave(client)
        admitted = roster.admit(set(ids), busy)
        for client in [c for c in roster.absent if roster.nodes[c] in ids]:
            roster.join(client)
        return admitted

    assert update_roster(1, 2, 3) == [0, 1, 2]
    assert update_roster(1, 2) == update_roster(1) == []
    assert update_roster(1, 7, busy=[2]) == [1], "client 2 still has a job"
    assert roster.nodes == [1, 7, 3]
    assert update_roster(1, 3, 7) == [], "the node has kept its place"
    assert update_roster(1) == []
    again = Roster()
    again.restore(roster.nodes, roster.absent)
    assert again.absent == [1, 2, 0], "nodes absent before the restart have been absent longer"
    roster = again
    assert update_roster(1, 7, 9) == [2]
    assert update_roster(1, 7, 9, 3) == [3], "its place is taken, and no node is absent"


def test_node_leaves_once_and_keeps_its_number():
    roster = Roster()
    assert roster.admit({7, 8}, []) == [0, 1]
    assert (roster.nodes, roster.absent, roster.present) == ([7, 8], [0, 1], set())
    roster.join(1)
    assert (roster.absent, roster.present) == ([0], {1})
    assert roster.leave(1) is True
    assert roster.leave(1) is False, "it was absent before"
    assert (roster.nodes, roster.absent, roster.present) == ([7, 8], [0, 1], set())


@pytest.mark.parametrize(
    ("absent", "ids", "busy", "nodes"),
    [
        ([0, 1, 2], {9}, [], [9, 12, 13]),
        ([1, 0, 2], {9}, [], [11, 9, 13]),
        ([1, 0, 2], {9}, [1], [9, 12, 13]),
        ([1, 0, 2], {9, 12}, [], [9, 12, 13]),  # its node is back
        ([1, 0], {9, 11}, [1], [11, 12, 13, 9]),
        ([2], {8, 9}, [], [11, 12, 8, 9]),
        ([], {11, 12, 13}, [], [11, 12, 13]),
    ],
)
def test_newcomer_takes_first_free_place(absent, ids, busy, nodes):
    roster = Roster()
    roster.nodes, roster.absent = [11, 12, 13], list(absent)
    roster.admit(ids, busy)
    assert roster.nodes == nodes
