"""What kind of character is it, by the words of its name? Each script, or family of signs, is a client.

The data are the Unicode characters that Python knows: "TIBETAN VOWEL SIGN AA" is a mark, "TIBETAN DIGIT ONE" a digit.
Half of them are letters without case. A model that never finds the rare kinds is right often: accuracy hides what
macro-F1 shows.
"""

import sys
import unicodedata
from collections import Counter, defaultdict

import numpy as np
from torch import nn

import fadas

KINDS = ["Lo", "Ll", "Lu", "Lm", "Mn", "Mc", "Nd", "No", "Po", "So"]  # general categories of Unicode
WORDS = 300  # words that the model knows: those in most names
LARGEST = 300  # characters of a client


def load_characters(clients: int) -> list[list[tuple[list[str], int]]]:
    """Return the characters of the largest scripts. Of each character: the words of its name, and its kind.

    The first word names the script, so it is left out.
    """
    scripts = defaultdict(list)
    for character in map(chr, range(sys.maxunicode + 1)):
        kind = unicodedata.category(character)
        if kind in KINDS and (name := unicodedata.name(character, "")):
            script, *words = name.replace("-", " ").split()
            scripts[script].append((words, KINDS.index(kind)))
    largest = sorted(scripts, key=lambda script: (-len(scripts[script]), script))[:clients]
    shuffle = np.random.default_rng(0).permutation  # the same characters for every seed
    return [[scripts[script][row] for row in shuffle(len(scripts[script]))[:LARGEST]] for script in largest]


def make_model() -> nn.Module:
    """Return the network: a score for each kind."""
    return nn.Sequential(nn.Linear(WORDS, 32), nn.ReLU(), nn.Linear(32, len(KINDS)))


def make_task(clients: int = 60, validation: float = 0.0) -> fadas.Task:
    """Return the task. experiment.toml names this function.

    Args:
        clients: The number of scripts.
        validation: `fadas sweep` measures on this share of each script's training characters instead of the test ones.
    """
    test, train = split_off(load_characters(clients), 0.2)
    if validation:
        test, train = split_off(train, validation)
    counts = Counter(word for own in train for words, _ in own for word in set(words))
    known = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]
    column = {word: number for number, word in enumerate(known)}

    def to_arrays(characters: list[tuple[list[str], int]]) -> tuple[np.ndarray, np.ndarray]:
        x = np.zeros((len(characters), WORDS), "float32")
        for row, (words, _) in zip(x, characters):
            row[[column[word] for word in words if word in column]] = 1
        return x, np.array([kind for _, kind in characters])

    return fadas.Task(
        model=make_model,
        clients=[to_arrays(own) for own in train],
        test=to_arrays([character for own in test for character in own]),
        client_test=[to_arrays(own) for own in test],
        metrics=["macro_f1", "accuracy"],
    )


def split_off(groups: list[list], share: float) -> tuple[list[list], list[list]]:
    """Return a share of each group, and the rest of each group."""
    cuts = [round(share * len(group)) for group in groups]
    return [group[:cut] for group, cut in zip(groups, cuts)], [group[cut:] for group, cut in zip(groups, cuts)]
