"""The user's own data in files.

| file             | what it holds                                                            |
|------------------|--------------------------------------------------------------------------|
| `task.py`        | the task `files`, which chooses among the forms                          |
| `folder.py`      | a folder with one file per client                                        |
| `arrays.py`      | a folder with arrays for all clients, which stay on disk                 |
| `table.py`       | a table, CSV or Parquet, with a column that names the client             |
| `columns.py`     | columns of a table as numbers                                            |
| `holding_out.py` | a share of each client's examples for testing                            |
| `networks.py`    | simple networks, and loss and metrics of regression                      |
| `huggingface.py` | data sets of Hugging Face                                                |
"""

from fadas.tasks.files.huggingface import from_huggingface
from fadas.tasks.files.task import files

__all__ = ["files", "from_huggingface"]
