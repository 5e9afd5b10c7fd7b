"""One run's folder.

| file               | what it holds                                                                      |
|--------------------|------------------------------------------------------------------------------------|
| `folder.py`        | the names of the files, and `claim`, which takes the right to write there          |
| `lock.py`          | one process at a time                                                              |
| `writer.py`        | config.toml, metrics.jsonl, summary.json                                           |
| `sinks/`           | other receivers of records: TensorBoard, Weights & Biases, MLflow                  |
| `checkpoint.py`    | checkpoints                                                                        |
| `summary.py`       | the fields of summary.json                                                         |
| `reader.py`        | finished runs, read back                                                           |
| `follower.py`      | runs that are still growing                                                        |
| `same_run.py`      | are two runs the same? Lists the [run] settings that do not count                  |
| `formats.py`       | the version of all files, and upgrades of earlier ones                             |
| `serialization.py` | JSON and TOML, typed tables, atomic writing of files                               |
"""
