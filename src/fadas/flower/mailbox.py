"""The train messages of a deployment: which are under way, to which node, for which job."""

from fadas.core.ledger import Job

_REMEMBERED = 100_000  # messages whose jobs are remembered, to say why a late reply is refused


class Mailbox:
    """Train messages by Flower's message id.

    Attributes:
        jobs: The job of each message, also of messages that have ended.
        under_way: When each message was sent whose reply is awaited.
        asked: The node that may answer it.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.under_way: dict[str, float] = {}
        self.asked: dict[str, int] = {}

    @property
    def awaited(self) -> list[Job]:
        """The jobs of the messages under way."""
        return [self.jobs[id] for id in self.under_way]

    def add(self, id: str, job: Job, node: int, now: float) -> None:
        """Await the reply to a message that was just sent."""
        self.jobs[id], self.under_way[id], self.asked[id] = job, now, node
        if len(self.jobs) > _REMEMBERED:
            oldest = next(iter(self.jobs))
            if oldest not in self.under_way:
                del self.jobs[oldest]

    def remove(self, id: str) -> Job:
        """Await no more reply to a message. Return its job."""
        del self.under_way[id], self.asked[id]
        return self.jobs[id]

    def sent_before(self, moment: float) -> list[str]:
        """Return the messages under way that were sent before a moment."""
        return [id for id, sent in self.under_way.items() if sent < moment]

    def postpone(self, seconds: float) -> None:
        """Extend all deadlines by these seconds, which were not the nodes' fault."""
        self.under_way = {id: sent + seconds for id, sent in self.under_way.items()}
