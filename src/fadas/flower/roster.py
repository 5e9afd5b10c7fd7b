"""The roster of a deployment: which node is which client, and which clients are connected."""

from collections.abc import Iterable
from logging import INFO, WARNING

from flwr.common.logger import log


class Roster:
    """Maps nodes to client numbers. A client's number is the index of its node in `nodes`.

    A node with an unknown id takes the number of the client that has been away longest, if there is one. Otherwise
    the federation would fill with clients that never return: only authenticated nodes keep their ids. Other nodes, and
    those of Flower's simulation engine, get a new id at every start.

    Attributes:
        nodes: The node id of each client.
        present: The clients whose nodes are connected.
        absent: All other clients. Those that have been away longest come first.
    """

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.present: set[int] = set()
        self.absent: list[int] = []

    def restore(self, nodes: list[int], absent: list[int]) -> None:
        """Restore the roster of an interrupted run. No node is connected yet.

        Args:
            nodes: The node id of each client.
            absent: The clients that were absent. Those that had been away longest come first.
        """
        self.nodes, self.absent = nodes, [*absent, *sorted(set(range(len(nodes))) - set(absent))]

    def leave(self, client: int) -> bool:
        """Mark a client as absent, because its node cannot be reached. Return False if it was absent before."""
        if client not in self.present:
            return False
        log(WARNING, "node %s (client %d) is gone", self.nodes[client], client)
        self.present.remove(client)
        self.absent.append(client)
        return True

    def admit(self, ids: set[int], busy: Iterable[int]) -> list[int]:
        """Assign client numbers to new nodes and return those numbers.

        A new node takes the number of the client that has been away longest, unless that client still has a job.

        Args:
            ids: The ids of all connected nodes.
            busy: The clients that have a job.
        """
        reserved = set(busy)
        vacant = [c for c in self.absent if self.nodes[c] not in ids and c not in reserved]
        admitted: list[int] = []
        for node in sorted(ids - set(self.nodes)):
            if vacant:
                client = vacant.pop(0)
                log(INFO, "node %s takes the place of node %s", node, self.nodes[client])
                self.nodes[client] = node
            else:
                client = len(self.nodes)
                self.nodes.append(node)
                self.absent.append(client)
            admitted.append(client)
        return admitted

    def join(self, client: int) -> None:
        """Mark a client as present."""
        log(INFO, "node %s joins as client %d", self.nodes[client], client)
        self.absent.remove(client)
        self.present.add(client)
