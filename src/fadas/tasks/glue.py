"""GLUE's RTE, MRPC and SST-2 from their official TSV files, with any BERT-family encoder and LoRA.

Only the LoRA matrices and the classification head are trained and sent. The frozen encoder is held once per process,
however many clients there are.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fadas.rng import HOLDOUT, PARTITION
from fadas.runs.serialization import atomic_file
from fadas.tasks import encoders
from fadas.tasks.downloads import data_folder, may_cache
from fadas.tasks.partition import Kind, deal, hold_out_tests, split_off
from fadas.tasks.task import Subsets, Task, accuracy
from fadas.validate import MOST_LENGTH, MOST_RANK, at_least, at_most


@dataclass(frozen=True)
class GlueFormat:
    """The layout of a data set's files.

    Args:
        folder: The folder with train.tsv and dev.tsv.
        sentences: The columns of the sentences, one or two.
        label: The column of the label.
        labels: The possible labels. Their positions are the classes.
    """

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
    client_test: float | None = None,
    seed: int = 0,
) -> Task:
    """A GLUE task from its official TSV files: a BERT-family encoder, fine-tuned with LoRA.

    Results are measured on the dev set.

    Args:
        name: "rte", "mrpc" or "sst2".
        clients: The number of clients.
        partition: How the training examples are divided among the clients: "dirichlet" (skewed labels and sizes),
            "dirichlet-capped" (sizes differ less), "iid" (equal shares) or "shards" (few labels per client).
        alpha: The concentration of the Dirichlet partitions. Smaller is more skewed.
        shards: The pieces per client of the partition "shards".
        encoder: The name or local path of an encoder that transformers loads, or "tiny", a small random encoder for
            trying things out. A folder of that name in the data folder takes precedence.
        rank: The rank of the LoRA matrices.
        lora_alpha: LoRA's scaling factor. Its outputs are multiplied by lora_alpha / rank.
        targets: The names of the encoder's modules that get LoRA matrices.
        max_length: The largest number of tokens per example. Longer examples are truncated.
        limit: Use only the first `limit` training examples and the first `limit` dev examples. None: all.
        validation: Hold out this share of the training examples and measure on it instead of the dev set, for tuning.
        client_test: Hold out this share of each client's training examples as its own test data, see
            `run.clients_eval_every`. None: clients have none.
        seed: The seed of the partition.

    Example:
        >>> task = glue("rte", clients=20, encoder="tiny", max_length=32, limit=200, validation=0.1, client_test=0.2)
        >>> task = glue("sst2", clients=20, alpha=0.3, rank=4, lora_alpha=16, targets=("query", "value"))
        >>> task = glue("mrpc", clients=20, partition="shards", shards=3)
    """
    at_least(1, limit=limit, rank=rank)
    at_least(3, max_length=max_length)
    at_most(MOST_RANK, rank=rank)
    at_most(MOST_LENGTH, max_length=max_length)
    layout = LAYOUTS[name]
    texts = {split: read_tsv(layout, split, limit) for split in ("train", "dev")}
    tokenize = encoders.tokenizer(encoder, max_length)
    train, test = (_tokenize_cached(f"{layout.folder}-{split}", *text, tokenize) for split, text in texts.items())
    if validation:
        kept, held_out = split_off(len(train[-1]), validation, np.random.default_rng([1, HOLDOUT]))
        train, test = ([tensor[rows] for tensor in train] for rows in (kept, held_out))
    parts = deal(train[-1].numpy(), clients, np.random.default_rng([seed, PARTITION]), partition, alpha, shards)
    metrics = {"accuracy": accuracy, "f1": f1} if name == "mrpc" else {"accuracy": accuracy}
    model = partial(encoders.lora_classifier, encoder, rank, lora_alpha, targets)
    parts, own = hold_out_tests(parts, client_test)
    splits = Subsets(train, own) if own else None
    form = {"save": encoders.save_adapter, "load": encoders.adapter_names}
    return Task(model, Subsets(train, parts), test=test, metrics=metrics, client_test=splits, **form)


def f1(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return F1 of the positive class."""
    predicted = outputs.argmax(1) == 1
    hits = (predicted & (targets == 1)).sum().double()
    return 2 * hits / (predicted.sum() + (targets == 1).sum()).clamp(min=1)


def read_tsv(layout: GlueFormat, split: str, limit: int | None = None) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the sentences (one or two per example) and the labels of a TSV file. Quotation marks are text, as in GLUE.

    Args:
        layout: The layout of the file.
        split: "train" or "dev".
        limit: Read only the first `limit` examples. None: all.
    """
    path = data_folder() / layout.folder / f"{split}.tsv"
    try:
        header, *lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except OSError as error:
        hint = f"set FADAS_DATA to the folder that holds {layout.folder}"
        raise ValueError(f"cannot read {path} ({error.strerror}); {hint}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text: {error}") from None
    names = header.rstrip("\r").split("\t")
    missing = [column for column in (*layout.sentences, layout.label) if column not in names]
    if missing:
        raise ValueError(f"{path}, line 1: expected a column {missing[0]!r}, got {', '.join(map(repr, names))}")
    columns = [names.index(column) for column in layout.sentences]
    label = names.index(layout.label)
    sentences: list[tuple[str, ...]] = []
    labels: list[int] = []
    for number, line in enumerate(lines[:limit], 2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(names):
            raise ValueError(f"{path}, line {number}: expected {len(names)} columns, got {len(cells)}")
        if cells[label] not in layout.labels:
            expected = " or ".join(map(repr, layout.labels))
            raise ValueError(f"{path}, line {number}: expected the label {expected}, got {cells[label]!r}")
        sentences.append(tuple(cells[column] for column in columns))
        labels.append(layout.labels.index(cells[label]))
    if not labels:
        raise ValueError(f"{path} has no examples")
    return sentences, labels


def _tokenize_cached(
    name: str, sentences: list[tuple[str, ...]], labels: list[int], tokenize: encoders.Tokenizer
) -> list[Tensor]:
    """Return token ids, token types and labels. Tokens are cached in the data folder."""
    key = hashlib.sha256(repr((tokenize.key, sentences)).encode()).hexdigest()[:20]
    path = data_folder() / "cache" / f"{name}-{key}.safetensors"
    try:
        cached = load_file(path)
        ids, types = cached["ids"], cached["types"]
    except (OSError, KeyError, SafetensorError):
        ids, types = tokenize(sentences)
        if may_cache():
            _write_cache({"ids": ids, "types": types}, path)
    return [ids, types, torch.tensor(labels)]


def _write_cache(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a cache file if possible. Errors are ignored, because the cache only saves time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(save(tensors))
