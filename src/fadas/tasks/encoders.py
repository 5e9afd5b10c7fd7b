"""BERT-family encoders from transformers, with LoRA from peft. Both packages are imported on first use."""

import copy
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fadas.errors import first_line
from fadas.tasks.downloads import data_folder

TINY = "tiny"
_TINY_VOCABULARY = 1000


class Tokenizer(Protocol):
    """Turns sentences into token ids.

    Attributes:
        key: A text that changes if the tokenizer gives other results. It names cached results.

    Example:
        >>> tokenize = tokenizer("tiny", max_length=8)
        >>> ids, types = tokenize([("A first sentence.", "A second one.")])
    """

    key: str

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        """Return token ids and token types, each int32 [examples, length].

        Args:
            sentences: One sentence or a pair of sentences per example.

        Returns:
            The ids, padded with the encoder's padding id. The types, which tell the sentences of a pair apart.
        """
        ...


def tokenizer(encoder: str, max_length: int) -> Tokenizer:
    """Return the tokenizer of an encoder. It truncates examples to `max_length` tokens."""
    return _TinyTokenizer(max_length) if encoder == TINY else _PretrainedTokenizer(encoder, max_length)


class _PretrainedTokenizer:
    def __init__(self, encoder: str, max_length: int) -> None:
        self._tokenizer = _load_pretrained("AutoTokenizer", encoder)
        self.max_length = max_length
        vocabulary = zlib.crc32(repr(sorted(self._tokenizer.get_vocab().items())).encode())
        self.key = f"{type(self._tokenizer).__name__}-{vocabulary}-{max_length}"

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        first = [pair[0] for pair in sentences]
        second = [pair[1] for pair in sentences] if len(sentences[0]) > 1 else None
        options = {"truncation": True, "max_length": self.max_length, "padding": True, "return_token_type_ids": True}
        encoded = self._tokenizer(first, second, return_tensors="pt", **options)
        return encoded["input_ids"].int(), encoded["token_type_ids"].int()


class _TinyTokenizer:
    """Hashes words to ids, so it needs no vocabulary."""

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.key = f"tiny-{max_length}"

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        ids = torch.zeros(len(sentences), self.max_length, dtype=torch.int32)
        types = torch.zeros_like(ids)
        for row, parts in enumerate(sentences):
            row_ids: list[int] = [2]
            row_types: list[int] = [0]
            for part_type, part in enumerate(parts):
                words = [4 + zlib.crc32(word.lower().encode()) % (_TINY_VOCABULARY - 4) for word in part.split()]
                row_ids += [*words, 3]
                row_types += [part_type] * (len(words) + 1)
            row_ids, row_types = row_ids[: self.max_length], row_types[: self.max_length]
            ids[row, : len(row_ids)] = torch.tensor(row_ids)
            types[row, : len(row_types)] = torch.tensor(row_types)
        return ids, types


class Classifier(nn.Module):
    """A module that maps (ids, types) to logits with an encoder for sequence classification.

    Args:
        encoder: A sequence classification model from transformers, or a PEFT model around one.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self._padding = encoder.config.pad_token_id or 0
        self._has_types = getattr(encoder.config, "type_vocab_size", 0) > 1

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        """Return logits of shape [examples, classes]."""
        mask = ids != self._padding
        # All data are padded to the longest example. Most batches need less. A captured graph has a fixed length.
        captured = torch.compiler.is_compiling() or (ids.is_cuda and torch.cuda.is_current_stream_capturing())
        length = ids.shape[1] if captured else int(mask.sum(1).max())
        inputs: dict[str, Tensor] = {"input_ids": ids[:, :length].long(), "attention_mask": mask[:, :length]}
        if self._has_types:
            inputs["token_type_ids"] = types[:, :length].long()
        return self.encoder(**inputs).logits


@cache
def _base(encoder: str) -> Any:
    """Return the pre-trained encoder. It is frozen, and loaded once per process."""
    if encoder == TINY:
        from transformers import BertConfig, BertForSequenceClassification

        sizes: dict[str, Any] = {
            "vocab_size": _TINY_VOCABULARY,
            "num_labels": 2,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            base = BertForSequenceClassification(BertConfig(**sizes))
    else:
        base = _load_pretrained("AutoModelForSequenceClassification", encoder, num_labels=2)
    return base.requires_grad_(False)


def lora_classifier(encoder: str, rank: int, alpha: int, targets: tuple[str, ...]) -> nn.Module:
    """Return a classifier: new LoRA matrices and a new head on the shared, frozen encoder.

    Args:
        encoder: A name or a path that transformers loads, or "tiny".
        rank: The rank of the LoRA matrices.
        alpha: LoRA's scaling factor. Its outputs are multiplied by alpha / rank.
        targets: The names of the encoder's modules that get LoRA matrices.
    """
    return lora(_base(encoder), rank, alpha, targets)


def lora(base: Any, rank: int, alpha: int, targets: tuple[str, ...]) -> nn.Module:
    """Return a classifier with new LoRA matrices and a new head on `base`. See `lora_classifier`."""
    from peft import LoraConfig, get_peft_model

    # LoRA is injected into a copy of the modules. The copy shares the frozen tensors with `base`.
    model = copy.deepcopy(base, {id(tensor): tensor for tensor in base.parameters()})
    model.classifier = copy.deepcopy(base.classifier)
    for module in model.classifier.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    settings = LoraConfig(
        task_type="SEQ_CLS", r=rank, lora_alpha=alpha, target_modules=list(targets), modules_to_save=["classifier"]
    )
    try:
        return Classifier(get_peft_model(model, settings))
    except ValueError as error:
        raise ValueError(f"LoRA does not fit this encoder: {first_line(error)}") from None


def save_adapter(module: nn.Module, folder: Path) -> None:
    """Save the trained part as a PEFT adapter folder. `peft.PeftModel.from_pretrained` loads it onto the base."""
    module.encoder.save_pretrained(folder / "adapter")  # type: ignore[union-attr, operator]
    for path in (folder / "adapter").glob("*.safetensors"):  # rewritten, because only their owner could read them
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


def adapter_names(module: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of an adapter file by the names of a classifier with LoRA. Other names stay as they are."""
    own = module.state_dict()
    saved = {re.sub(r"\.(modules_to_save\.)?default(?=\.)", "", name).removeprefix("encoder."): name for name in own}
    return {name if name in own else saved.get(name, name): tensor for name, tensor in tensors.items()}


def _load_pretrained(kind: str, encoder: str, **options: Any) -> Any:
    """Load an encoder or its tokenizer with the transformers class `kind`."""
    try:
        import transformers
    except ImportError:
        raise ValueError("the language tasks need transformers: pip install '.[language]' in a checkout") from None
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    local = data_folder() / encoder  # a folder of that name takes precedence, so that no hub is needed
    try:
        return getattr(transformers, kind).from_pretrained(local if local.is_dir() else encoder, **options)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot load the encoder {encoder!r}: {first_line(error)}") from None
