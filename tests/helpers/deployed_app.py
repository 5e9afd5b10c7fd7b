"""A Flower app, run in this process: its ServerApp with nodes that run its ClientApp."""

import sys
import tomllib
from importlib import import_module

from flwr.app import Context, RecordDict

from helpers.flower import Node, Nodes, patch_clock

MODULES = ("app", "app.task", "app.client_app", "app.server_app")


def forget_app() -> None:
    """Let the next app of this process be imported from its own folder."""
    for name in MODULES:
        sys.modules.pop(name, None)


def run_app(monkeypatch, folder, runs, **settings):
    """Run an app's server with seven nodes. Return its task, its settings, the run's folder and the arrays sent.

    Args:
        monkeypatch: Pytest's.
        folder: The app, with its pyproject.toml.
        runs: Where the run is kept.
        settings: Settings of the app to change.
    """
    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config = {**config, "folder": str(runs), **settings}
    monkeypatch.syspath_prepend(folder)
    server_app, client_app, task = (import_module(f"app.{name}") for name in ("server_app", "client_app", "task"))

    contexts = {
        node: Context(1, node, {"partition-id": node % 7}, RecordDict(), config) for node in (1, *range(11, 18))
    }

    sent = []

    def answer(message):
        reply = client_app.app(message, contexts[message.metadata.dst_node_id])
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
        sent.extend(set(m.content["arrays"]) for m in (message, reply))
        return [reply]

    clock = patch_clock(monkeypatch)
    monkeypatch.setattr(
        "fadas.flower.federation.secrets.token_bytes", lambda size: b"k" * size
    )  # the same jobs every time
    server_app.app(Nodes(clock, {node: Node(answer) for node in range(11, 18)}), contexts[1])
    return task.make_task(config), config, runs / f"{config['algorithm']}-{config['seed']}", sent
