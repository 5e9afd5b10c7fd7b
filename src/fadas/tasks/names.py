"""Names of functions: guess the first word of a function's name from the words in its body.

The functions are those of Python's standard library, so nothing is downloaded. Each client is a module or package. The
data depend on the version of Python, and on nothing else.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fadas.runs.serialization import atomic_file
from fadas.tasks.downloads import data_folder, may_cache
from fadas.tasks.functions import Function, digest_sources, library_folder, parse_functions, read_sources
from fadas.tasks.partition import natural, share_of
from fadas.tasks.task import Subsets, Task
from fadas.validate import at_least

TEST_SHARE = 1 / 6


def names(clients: int = 50, words: int = 1000, targets: int = 100, hidden: int = 32, validation: float = 0.0) -> Task:
    """Function names of Python's standard library, and a two-layer network: guess the first word from the body.

    The clients are the modules with most functions. A sixth of each client's functions is the test set. Functions that
    share text, such as a function and those defined in it, are never divided between training and test. The words and
    the targets are chosen from training data. Each client's share of the test set is also its own test data, for
    `run.clients_eval_every`.

    Args:
        clients: The number of clients.
        words: The number of words that the network sees: those that occur in most functions.
        targets: The number of first words to tell apart: the commonest ones. Functions with other names are left out.
        hidden: The width of the hidden layer.
        validation: Hold out this share of each client's training functions and measure on it instead of the test
            functions, for tuning. Clients with too few functions keep all of them.

    Example:
        >>> task = names(clients=20, words=500, targets=50, hidden=64, validation=0.2)
    """
    at_least(1, clients=clients, words=words, targets=targets, hidden=hidden)
    train, test = _split_clients(_largest_modules(load_functions(), clients), TEST_SHARE, "test")
    labels = _most_common((function.target for function in train), targets)
    train, test = ([function for function in part if function.target in labels] for part in (train, test))
    if validation:
        train, test = _split_clients(_by_module(train), validation, "validation")
    if not test:
        raise ValueError(f"{clients} clients have too few functions to hold any out; use more clients")
    columns = _most_common((word for function in train for word in function.words), words)
    parts = natural([function.module for function in train])
    if len(parts) < clients:
        raise ValueError(
            f"{clients - len(parts)} of {clients} clients have no function with one of the {targets} commonest first "
            "words; use fewer clients or more targets"
        )

    def tensors(functions: Sequence[Function]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.zeros(len(functions), len(columns))
        for row, function in zip(inputs, functions, strict=True):
            row[torch.tensor([columns[word] for word in function.words if word in columns], dtype=torch.long)] = 1.0
        return inputs, torch.tensor([labels[function.target] for function in functions])

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(len(columns), hidden), nn.ReLU(), nn.Linear(hidden, len(labels)))

    clients_data = Subsets(tensors(train), [torch.from_numpy(part) for part in parts.values()])
    held_out, of_clients = tensors(test), natural([function.module for function in test])
    none = np.zeros(0, np.int64)  # a client without functions of its own among the held-out ones
    own = Subsets(held_out, [torch.from_numpy(of_clients.get(module, none)) for module in parts])
    return Task(model, clients_data, test=held_out, client_test=own)


def load_functions() -> list[Function]:
    """Return the functions of the standard library. Parsing takes seconds, so they are cached in the data folder."""
    sources = read_sources(library_folder())
    path = data_folder() / "cache" / f"names-{digest_sources(sources)[:20]}.json"
    with suppress(OSError, ValueError):
        return _read_cache(path)
    functions = parse_functions(sources)
    with suppress(OSError):  # the cache only saves time
        if may_cache():
            _write_cache(functions, path)
    return functions


def _read_cache(path: Path) -> list[Function]:
    digest, _, text = path.read_bytes().partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("the cache is damaged")
    table = json.loads(text)
    words: list[str] = table["words"]
    return [
        Function(module, place, target, tuple(words[index] for index in indices))
        for module, place, target, indices in table["functions"]
    ]


def _write_cache(functions: Iterable[Function], path: Path) -> None:
    indices: dict[str, int] = {}
    rows = [
        (*function[:3], [indices.setdefault(word, len(indices)) for word in function.words]) for function in functions
    ]
    text = json.dumps({"words": list(indices), "functions": rows}, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def _by_module(functions: Iterable[Function]) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in functions:
        found.setdefault(function.module, []).append(function)
    return found


def _largest_modules(functions: Iterable[Function], clients: int) -> dict[str, list[Function]]:
    """Return the functions of the modules with most functions, from the largest to the smallest."""
    found = _by_module(functions)
    if clients > len(found):
        raise ValueError(f"clients must be at most the number of modules with functions ({len(found)}), got {clients}")
    ranked = sorted(found, key=lambda module: (-len(found[module]), module))
    return {module: found[module] for module in ranked[:clients]}


def _most_common(found: Iterable[str], count: int) -> dict[str, int]:
    """Return the position of each of the commonest words, from the commonest to the rarest."""
    counts = Counter(found)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: position for position, word in enumerate(ranked[:count])}


def _split_clients(
    clients: dict[str, list[Function]], share: float, purpose: str
) -> tuple[list[Function], list[Function]]:
    """Hold out a share of each client's functions. Return (the rest, the share).

    Functions of the same place stay together. The order in which places are held out is that of a hash of their names.
    A client keeps at least one function.
    """
    kept: list[Function] = []
    held_out: list[Function] = []
    for functions in clients.values():
        sizes = Counter(function.place for function in functions)
        wanted, chosen = min(share_of(len(functions), share), len(functions) - 1), set[str]()
        for place in sorted(sizes, key=lambda place: hashlib.sha256(f"{purpose} {place}".encode()).digest()):
            if sizes[place] <= wanted:
                chosen.add(place)
                wanted -= sizes[place]
        kept += [function for function in functions if function.place not in chosen]
        held_out += [function for function in functions if function.place in chosen]
    return kept, held_out
