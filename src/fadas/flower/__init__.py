"""An asynchronous strategy for Flower, tested with Flower 1.41. It needs the extra `flower`.

| file            | what it holds                                                             |
|-----------------|---------------------------------------------------------------------------|
| `strategy.py`   | `AsyncStrategy`, what users construct                                     |
| `options.py`    | its settings; what an app's run config says                               |
| `client.py`     | what a node does with a train message                                     |
| `federation.py` | one run: the messages under way, the replies, the server                  |
| `evaluator.py`  | when a model is evaluated, and what was measured                          |
| `roster.py`     | which node is which client, and who is connected                          |
| `mailbox.py`    | the messages under way                                                    |
| `saved_run.py`  | what a checkpoint holds beside the server, checked                        |
| `messages.py`   | jobs -> train messages, replies -> updates                                |
| `arrays.py`     | Flower's named arrays <-> flat vectors                                    |
| `journal.py`    | what a deployment keeps on disk                                           |
| `template/`     | the app that `fadas deploy init` writes                                   |
"""

try:
    from fadas.flower.client import train_and_reply
    from fadas.flower.options import local_from_run_config, task_from_run_config
    from fadas.flower.strategy import AsyncStrategy
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flwr":
        raise
    raise ModuleNotFoundError("this needs Flower: run pip install '.[flower]' in a checkout", name="flwr") from error

__all__ = ["AsyncStrategy", "local_from_run_config", "task_from_run_config", "train_and_reply"]
