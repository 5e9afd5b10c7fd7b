"""The engine. It imports no algorithm.

| file               | what it holds                                                          |
|--------------------|------------------------------------------------------------------------|
| `ledger.py`        | who trains from which version, the buffer, the delays: no tensors      |
| `server.py`        | `Server`: receives updates; updates the model when the buffer is full  |
| `model.py`         | the types: `Model`, `Update`, `ServerState`, `ServerStep`              |
| `server_step.py`   | one step as a pure function; the updates that spoil a step             |
| `recent_updates.py`| what recent updates look like, for the relative checks                 |
| `update_checks.py` | `Checks`: what an update must pass before the server accepts it        |
| `progress.py`      | the counters of a run, and its records                                 |
| `records.py`       | `Record`: one line of metrics.jsonl                                    |
| `saved_state.py`   | a server as tensors and plain values, for checkpoints                  |
| `trial_step.py`    | one server step before a run, to find errors early                     |
"""
