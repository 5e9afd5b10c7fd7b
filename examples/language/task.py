"""Which character comes next? The text is Python's own manual, the topics of `help()`. Each topic is a client."""

import string
from pydoc_data.topics import topics

import torch
from torch import nn

import fadas

CHARACTERS = "\n" + string.printable[:95]  # all others are one character, number 0
CONTEXT = 8  # characters that the model sees
LONGEST = 6000  # characters of a client


def load_texts(clients: int) -> list[str]:
    """Return the longest topics, one text per client."""
    names = sorted(topics, key=lambda name: (-len(topics[name]), name))
    return [topics[name][:LONGEST] for name in names[:clients]]


def to_examples(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the examples of a text: CONTEXT characters, as numbers, and the character that comes next."""
    numbers = torch.tensor([CHARACTERS.find(character) + 1 for character in text])
    windows = numbers.unfold(0, CONTEXT + 1, 1)
    return windows[:, :-1].contiguous(), windows[:, -1].contiguous()


def make_model() -> nn.Module:
    """Return the network: scores for the next character."""
    known = len(CHARACTERS) + 1
    return nn.Sequential(
        nn.Embedding(known, 12), nn.Flatten(), nn.Linear(12 * CONTEXT, 64), nn.ReLU(), nn.Linear(64, known)
    )


def make_task(clients: int = 40, validation: float = 0.0) -> fadas.Task:
    """Return the task. experiment.toml names this function.

    Args:
        clients: The number of topics.
        validation: `fadas sweep` measures on this share of each training text instead of the test texts.
    """
    train, test = zip(*(split_text(text, 0.1) for text in load_texts(clients)))  # the end of each text is for testing
    if validation:
        train, test = zip(*(split_text(text, validation) for text in train))
    inputs, targets = zip(*map(to_examples, test))
    return fadas.Task(
        model=make_model,
        clients=[to_examples(text) for text in train],
        test=(torch.cat(inputs), torch.cat(targets)),
        metrics=["perplexity", "accuracy"],
    )


def split_text(text: str, share: float) -> tuple[str, str]:
    """Return a text without its last part, and the last part."""
    place = round((1 - share) * len(text))
    return text[:place], text[place:]
