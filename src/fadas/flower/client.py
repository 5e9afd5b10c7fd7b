"""The client's side of a deployment: train on a message of `AsyncStrategy`, and answer it."""

from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor

from fadas.core.ledger import Job
from fadas.core.model import Model
from fadas.flower.messages import VECTOR
from fadas.tasks.task import Task
from fadas.training.flat_module import FlatModule
from fadas.training.job_state import SERVER
from fadas.training.one_job import train_job
from fadas.training.sgd import LocalSGD

_KEPT = "fadas-kept"  # the record of a node's state with what it keeps between jobs


def train_and_reply(message: Message, context: Context, task: Task, local: LocalSGD, client: int = 0) -> Message:
    """Train on this node's part of a task, and return the reply to a train message.

    The reply holds the change of the model, the loss, the number of examples, and what the algorithm asks for. What the
    node keeps until its next job, such as the moments of `local.keep`, is stored in `context.state`.

    Args:
        message: The message. Its "fadas-job" and "fadas-seed" decide the shuffling.
        context: The node's context.
        task: Model, data and loss.
        local: What a node does with a job, from `local_from_run_config`.
        client: Which of the task's clients the node is.

    Example:
        >>> @app.train()
        ... def train(message, context):
        ...     task, local = task_from_run_config(context.run_config), local_from_run_config(context.run_config)
        ...     return train_and_reply(message, context, task, local, client=context.node_config["partition-id"])
    """
    asked: dict[str, Any] = dict(message.content.config_records["config"])
    settings: dict[str, Any] = {"seed": 0, **context.run_config}
    run_seed = int(settings["seed"])
    job = Job(asked["fadas-job"], client, asked["server-round"] - 1)
    flat = FlatModule(task.module(run_seed))
    sent = message.content.array_records["arrays"].to_torch_state_dict()
    flat.module.load_state_dict(sent, strict=False)  # frozen weights are not sent: every node has them already
    start = flat.read()
    vectors = {**_received(message.content, flat), **_kept(context, start)}
    own = local.for_job(job, task.sizes[client], run_seed)  # laws per client need a seed that all jobs share
    update = train_job(flat, task, own, asked["fadas-seed"], job, Model(start.params, start.buffers, vectors))
    if update.kept and all(bool(vector.isfinite().all()) for vector in update.kept.values()):
        context.state[_KEPT] = ArrayRecord({name: Array(v.numpy()) for name, v in update.kept.items()})
    changed = flat.state_dict(Model(update.delta, update.buffers))
    metrics: dict[str, Any] = {"train_loss": float(update.metrics["loss"]), "num-examples": update.examples}
    content = RecordDict({"arrays": ArrayRecord({name: changed[name] for name in sent})})
    parameters = flat.module.named_parameters(remove_duplicate=False)
    trained = [name for name, p in parameters if p.requires_grad and name in sent]  # tied weights under all names
    for name, vector in update.vectors.items():
        if vector.dim():
            named = flat.state_dict(Model(vector, update.buffers))
            content[f"{VECTOR}{name}"] = ArrayRecord({key: named[key] for key in trained})
        else:
            metrics[f"{VECTOR}{name}"] = float(vector)
    content["metrics"] = MetricRecord(metrics)
    return Message(content, reply_to=message)


def _received(content: RecordDict, flat: FlatModule) -> dict[str, Tensor]:
    """Return what the server sent beside the model."""
    records = {name: record for name, record in content.array_records.items() if name.startswith(VECTOR)}
    return {f"{SERVER}{name.removeprefix(VECTOR)}": _join(record, flat) for name, record in records.items()}


def _join(record: ArrayRecord, flat: FlatModule) -> Tensor:
    """Return a record of arrays that are named like the parameters as one vector."""
    vector, arrays = torch.zeros_like(flat.params), record.to_torch_state_dict()
    for name, view in flat.named_params(vector).items():
        view.copy_(arrays[name])
    return vector


def _kept(context: Context, like: Model) -> Mapping[str, Tensor]:
    """Return what this node has kept from its last job."""
    if _KEPT not in context.state.array_records:
        return {}
    arrays = context.state.array_records[_KEPT].items()
    kept = {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays}
    return {name: vector for name, vector in kept.items() if vector.shape in ((), like.params.shape)}
