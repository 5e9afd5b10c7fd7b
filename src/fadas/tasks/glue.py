"""GLUE's RTE, MRPC and SST-2 from their official TSV files, with any BERT-family encoder and LoRA.

Only the LoRA matrices and the classification head are trained and travel. The frozen encoder is held once per process,
however many clients there are.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fadas.rng import HOLDOUT, PARTITION
from fadas.tasks import encoders
from fadas.tasks.downloads import data_folder
from fadas.tasks.partition import Kind, deal, split_off
from fadas.tasks.task import Subsets, Task, accuracy


@dataclass(frozen=True)
class GlueFormat:
    """Where a data set's files name their sentences and labels."""

    folder: str
    sentences: tuple[str, ...]
    label: str
    labels: tuple[str, ...]


LAYOUTS = {
    "rte": GlueFormat("RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment")),
    "mrpc": GlueFormat("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1")),
    "sst2": GlueFormat("SST-2", ("sentence",), "label", ("0", "1")),
}


def glue(
    name: str,
    /,
    clients: int = 10,
    partition: Kind = "dirichlet-capped",
    alpha: float = 0.6,
    shards: int = 2,
    encoder: str = "bert-base-uncased",
    rank: int = 1,
    lora_alpha: int = 8,
    targets: tuple[str, ...] = ("query", "key", "value"),
    max_length: int = 128,
    limit: int | None = None,
    validation: float = 0.0,
    seed: int = 0,
) -> Task:
    """A GLUE task from its official TSV files: a BERT-family encoder, fine-tuned with LoRA.

    `encoder` is a name or a local path that transformers loads, a folder of that name beside the data coming first;
    or "tiny": a small random one for trying things out.
    LoRA of `rank` and `lora_alpha` goes into the encoder's modules named `targets`. Measured on the dev set.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if rank < 1 or max_length < 3:
        raise ValueError(f"rank must be at least 1 and max_length at least 3, not {rank} and {max_length}")
    layout = LAYOUTS[name]
    texts = {split: read_tsv(layout, split, limit) for split in ("train", "dev")}
    tokenize = encoders.tokenizer(encoder, max_length)
    train, test = (_encoded(f"{layout.folder}-{split}", *text, tokenize) for split, text in texts.items())
    if validation:
        kept, held_out = split_off(len(train[-1]), validation, np.random.default_rng([1, HOLDOUT]))
        train, test = ([tensor[rows] for tensor in train] for rows in (kept, held_out))
    parts = deal(train[-1].numpy(), clients, np.random.default_rng([seed, PARTITION]), partition, alpha, shards)
    metrics = {"accuracy": accuracy, "f1": f1} if name == "mrpc" else {"accuracy": accuracy}
    model = partial(encoders.lora_classifier, encoder, rank, lora_alpha, targets)
    return Task(model, Subsets(train, parts), test=test, metrics=metrics, save=encoders.save_adapter)


def f1(outputs: Tensor, targets: Tensor) -> Tensor:
    """F1 of the positive class."""
    found = outputs.argmax(1) == 1
    hits = (found & (targets == 1)).sum().double()
    return 2 * hits / (found.sum() + (targets == 1).sum()).clamp(min=1)


def read_tsv(layout: GlueFormat, split: str, limit: int | None = None) -> tuple[list[tuple[str, ...]], list[int]]:
    """A TSV file's sentences (one or two per example) and labels. Quotes are text, as the data sets mean them."""
    path = data_folder() / layout.folder / f"{split}.tsv"
    try:
        header, *lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except OSError as error:
        hint = "set FADAS_DATA to the folder that holds GLUE's RTE, MRPC and SST-2"
        raise ValueError(f"expected {path} ({error.strerror}); {hint}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    names = header.rstrip("\r").split("\t")
    missing = [column for column in (*layout.sentences, layout.label) if column not in names]
    if missing:
        raise ValueError(f"{path}: expected a column {missing[0]!r} in the first line, which has {names}")
    columns = [names.index(column) for column in layout.sentences]
    label = names.index(layout.label)
    sentences: list[tuple[str, ...]] = []
    labels: list[int] = []
    for number, line in enumerate(lines[:limit], 2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(names) or cells[label] not in layout.labels:
            raise ValueError(f"{path}, line {number}: expected {len(names)} columns and a label of {layout.labels}")
        sentences.append(tuple(cells[column] for column in columns))
        labels.append(layout.labels.index(cells[label]))
    if not labels:
        raise ValueError(f"{path} has no examples")
    return sentences, labels


def _encoded(
    name: str, sentences: list[tuple[str, ...]], labels: list[int], tokenize: encoders.Tokenizer
) -> list[Tensor]:
    """(token ids, token types, labels): tokenised once, then read from a cache beside the data."""
    key = hashlib.sha256(repr((tokenize.key, sentences)).encode()).hexdigest()[:20]
    path = data_folder() / "cache" / f"{name}-{key}.safetensors"
    try:
        cached = load_file(path)
        ids, types = cached["ids"], cached["types"]
    except (OSError, KeyError, SafetensorError):
        ids, types = tokenize(sentences)
        _store({"ids": ids, "types": types}, path)
    return [ids, types, torch.tensor(labels)]


def _store(tensors: dict[str, Tensor], path: Path) -> None:
    """A cache that cannot be written is no reason to stop."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_bytes(save(tensors))
        os.replace(draft, path)
    except OSError:
        pass
