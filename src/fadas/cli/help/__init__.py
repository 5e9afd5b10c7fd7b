"""Help at the prompt.

| file            | what it holds                                                  |
|-----------------|----------------------------------------------------------------|
| `explain.py`    | `fadas explain`                                                |
| `doctor.py`     | `fadas doctor`                                                 |
"""
