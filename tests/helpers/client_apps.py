"""Clients that Flower's simulation engine imports in its worker processes."""

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

ADAPTERS = ("layer.lora_A", "layer.lora_B")
app = ClientApp()


def make_net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def make_data(node):
    generator = torch.Generator().manual_seed(node % 2**32)
    x = torch.randn(40, 4, generator=generator) + torch.rand(1, generator=generator)
    return x, (x[:, 0] > x[:, 1]).long()


def train_net(net, node):
    """Take a few steps on the node's data. Return the last loss."""
    x, y = make_data(node)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    net.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


@app.train()
def _(message: Message, context: Context) -> Message:
    """Train the whole model, or adapters if the server's settings say what is to be sent of them."""
    train = train_adapters if "statistics" in message.content["config"] else train_whole_model
    return train(message, context)


def train_whole_model(message: Message, context: Context) -> Message:
    net = make_net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"train_loss": train_net(net, context.node_id), "num-examples": 40})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


def train_adapters(message: Message, context: Context) -> Message:
    """Add 1/2 to the adapters. Send these and, if asked for, statistics."""
    asked, arrays = message.content["config"], message.content["arrays"]
    begin = {name: np.zeros_like(v.numpy()) if asked["delta"] else v.numpy() for name, v in arrays.items()}
    answer = {name: begin[name] + np.float32(0.5) for name in ADAPTERS}
    if asked["statistics"]:
        answer["norm.running_mean"] = np.full(3, context.node_id % 97, np.float32)
    return Message(RecordDict({"arrays": ArrayRecord({k: Array(v) for k, v in answer.items()})}), reply_to=message)
