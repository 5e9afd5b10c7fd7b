"""Which node is which client, and who is connected."""

from collections.abc import Iterable
from logging import INFO, WARNING

from flwr.common.logger import log


class Roster:
    """A client's number is its node's place in `nodes`.

    A node that comes under an id nobody knows takes the place of the client that has been away longest, if one is. Only
    authenticated nodes keep their ids: others, and Flower's simulation engine, draw new ones whenever they start, and
    with a number for each the federation would fill with clients that never come back.
    """

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.present: set[int] = set()  # clients whose nodes are connected
        self.absent: list[int] = []  # all others, those first that have been away longest

    def restore(self, nodes: list[int], absent: list[int]) -> None:
        """A new start: nobody has been met yet."""
        self.nodes, self.absent = nodes, [*absent, *sorted(set(range(len(nodes))) - set(absent))]

    def leave(self, client: int) -> bool:
        """It cannot be reached. Was that news?"""
        if client not in self.present:
            return False
        log(WARNING, "node %s (client %d) is gone", self.nodes[client], client)
        self.present.remove(client)
        self.absent.append(client)
        return True

    def admit(self, ids: set[int], busy: Iterable[int]) -> list[int]:
        """Give the nodes that nobody knows a place, but not that of a client with a job: these clients."""
        kept = set(busy)
        vacant = [c for c in self.absent if self.nodes[c] not in ids and c not in kept]
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
        log(INFO, "node %s joins as client %d", self.nodes[client], client)
        self.absent.remove(client)
        self.present.add(client)
