"""Turn jobs into Flower's train messages, and replies into updates."""

import hmac
from collections.abc import Mapping

from flwr.app import DEFAULT_TTL, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from fadas.core.ledger import Job
from fadas.core.model import NOTHING, Exchange, Model, Update
from fadas.core.records import LATEST
from fadas.flower.arrays import ArrayLayout

VECTOR = "fadas-"  # begins the names of records and metrics that travel beside models and deltas
_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)  # Flower's own deadlines
_CODES = {value for name, value in vars(ErrorCode).items() if name.isupper()}


def job_seed(key: bytes, id: int) -> int:
    """Return the seed of a deployment's job: 62 bits, which Flower's records and torch take.

    Args:
        key: The deployment's secret key. When the run has finished, its summary.json holds it.
        id: The job's number.
    """
    digest = hmac.digest(key, id.to_bytes(8, "big"), "sha256")
    return int.from_bytes(digest[:8], "big") >> 2


def train_message(
    job: Job,
    node: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    seed: int,
    deadline: float,
    vectors: Mapping[str, ArrayRecord] = {},
) -> Message:
    """Return the message that asks a node to train.

    The message lives longer than the deadline, because the server enforces the deadline itself. Flower would measure
    it by the node's clock, and refuse all replies of a node whose clock is ahead.

    Args:
        job: The job to do.
        node: Flower's id of the node.
        arrays: The model to start from.
        config: The user's train config. The message adds "server-round", "fadas-job", "fadas-client" and "fadas-seed".
        seed: The job's seed. Nothing about the run's seed follows from it.
        deadline: Seconds that the node may take.
        vectors: What the algorithm sends beside the model. Each is a record of its own, such as "fadas-c".
    """
    config = ConfigRecord(dict(config))
    config["server-round"] = job.version + 1
    config["fadas-job"], config["fadas-client"], config["fadas-seed"] = job.id, job.client, seed
    beside = {f"{VECTOR}{name}": record for name, record in vectors.items()}
    content = RecordDict({"arrays": arrays, **beside, "config": config})
    return Message(content, node, MessageType.TRAIN, ttl=deadline + DEFAULT_TTL, group_id=str(job.version + 1))


def error_reason(code: int) -> str:
    """Return why a job ended with an error of Flower. The node chooses the code, so only known ones are told apart."""
    if code in _EXPIRED:
        return "expired"
    return f"error {code}" if code in _CODES else "error"


def parse_reply(
    job: Job, content: RecordDict, base: Model, layout: ArrayLayout, reply: str, exchange: Exchange = NOTHING
) -> Update:
    """Return a reply's content as an update.

    Args:
        job: The job that the reply belongs to.
        content: The content of the reply. It must hold one record of arrays, and one for each vector of `exchange`.
        base: The model that the job started from.
        layout: Converts the arrays.
        reply: What the arrays are: "arrays" for the trained model, "delta" for its difference from the arrays received.
        exchange: What must come beside the arrays.

    Raises:
        ValueError: The reply does not hold what the strategy expects.
    """
    records = dict(content.array_records)
    vectors = {name: layout.to_vector(records.pop(f"{VECTOR}{name}")) for name in exchange.returns}
    (arrays,) = records.values()
    model, start = layout.to_model(arrays, base), layout.as_sent(base.params)
    delta = model.params if reply == "delta" else model.params - start
    metrics: dict[str, float] = {}
    for record in content.metric_records.values():
        metrics |= {name: float(v) for name, v in record.items() if isinstance(v, int | float)}
    examples = int(metrics.get("num-examples", 1))
    loss = metrics.get("train_loss", metrics.get("train-loss", metrics.get("loss", float("nan"))))
    loss = loss if abs(loss) < LATEST else float("nan")  # a number that no file of ours may hold
    vectors |= {name: delta.new_tensor(metrics[f"{VECTOR}{name}"]) for name in exchange.numbers}
    return Update(job, delta, model.buffers, start, examples, {"loss": loss}, vectors)
