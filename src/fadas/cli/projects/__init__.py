"""Commands that write a folder to begin with.

| file           | what it holds                                                |
|----------------|--------------------------------------------------------------|
| `init.py`      | `fadas init`: an experiment with data and model of its own   |
| `deploy.py`    | `fadas deploy init`: a Flower app                            |
| `writing.py`   | what both share: which folder they take, what they say       |
| `templates/`   | the projects of `fadas init`                                 |
"""
