"""BERT-family encoders through transformers, with LoRA through peft. Both are imported only when they are used."""

import copy
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fadas.tasks.downloads import data_folder

TINY = "tiny"
_TINY_VOCABULARY = 1000


class Tokenizer(Protocol):
    key: str  # changes whenever the result would

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        """(ids, types), each int32 [examples, length], padded with the encoder's padding id."""
        ...


def tokenizer(encoder: str, max_length: int) -> Tokenizer:
    return _TinyTokenizer(max_length) if encoder == TINY else _PretrainedTokenizer(encoder, max_length)


class _PretrainedTokenizer:
    def __init__(self, encoder: str, max_length: int) -> None:
        self._tokenizer = _load("AutoTokenizer", encoder)
        self.max_length = max_length
        vocabulary = zlib.crc32(repr(sorted(self._tokenizer.get_vocab().items())).encode())
        self.key = f"{type(self._tokenizer).__name__}-{vocabulary}-{max_length}"

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        first = [pair[0] for pair in sentences]
        second = [pair[1] for pair in sentences] if len(sentences[0]) > 1 else None
        options = {"truncation": True, "max_length": self.max_length, "padding": True, "return_token_type_ids": True}
        coded = self._tokenizer(first, second, return_tensors="pt", **options)
        return coded["input_ids"].int(), coded["token_type_ids"].int()


class _TinyTokenizer:
    """Words hashed to ids: needs no vocabulary."""

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.key = f"tiny-{max_length}"

    def __call__(self, sentences: Sequence[tuple[str, ...]]) -> tuple[Tensor, Tensor]:
        ids = torch.zeros(len(sentences), self.max_length, dtype=torch.int32)
        types = torch.zeros_like(ids)
        for row, parts in enumerate(sentences):
            coded: list[int] = [2]
            kinds: list[int] = [0]
            for kind, part in enumerate(parts):
                words = [4 + zlib.crc32(word.lower().encode()) % (_TINY_VOCABULARY - 4) for word in part.split()]
                coded += [*words, 3]
                kinds += [kind] * (len(words) + 1)
            coded, kinds = coded[: self.max_length], kinds[: self.max_length]
            ids[row, : len(coded)] = torch.tensor(coded)
            types[row, : len(kinds)] = torch.tensor(kinds)
        return ids, types


class Classifier(nn.Module):
    """An encoder for sequence classification as a function of (ids, types) that returns logits."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self._padding = encoder.config.pad_token_id or 0
        self._typed = getattr(encoder.config, "type_vocab_size", 0) > 1

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        mask = ids != self._padding
        # The data are padded to their longest; a batch rarely needs that much. A captured graph has but one length.
        captured = torch.compiler.is_compiling() or (ids.is_cuda and torch.cuda.is_current_stream_capturing())
        length = ids.shape[1] if captured else int(mask.sum(1).max())
        inputs: dict[str, Tensor] = {"input_ids": ids[:, :length].long(), "attention_mask": mask[:, :length]}
        if self._typed:
            inputs["token_type_ids"] = types[:, :length].long()
        return self.encoder(**inputs).logits


@cache
def _base(encoder: str) -> Any:
    """The pre-trained encoder: loaded once per process and frozen."""
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
        base = _load("AutoModelForSequenceClassification", encoder, num_labels=2)
    return base.requires_grad_(False)


def lora_classifier(encoder: str, rank: int, alpha: int, targets: tuple[str, ...]) -> nn.Module:
    """A classifier with fresh LoRA matrices and a fresh head on the shared, frozen encoder."""
    return lora(_base(encoder), rank, alpha, targets)


def lora(base: Any, rank: int, alpha: int, targets: tuple[str, ...]) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    # A copy of the modules, to inject LoRA into; the frozen tensors themselves are shared by reference.
    mine = copy.deepcopy(base, {id(tensor): tensor for tensor in base.parameters()})
    mine.classifier = copy.deepcopy(base.classifier)
    for module in mine.classifier.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    settings = LoraConfig(
        task_type="SEQ_CLS", r=rank, lora_alpha=alpha, target_modules=list(targets), modules_to_save=["classifier"]
    )
    try:
        return Classifier(get_peft_model(mine, settings))
    except ValueError as error:
        raise ValueError(f"LoRA does not fit this encoder: {str(error).splitlines()[0]}") from None


def save_adapter(module: nn.Module, folder: Path) -> None:
    """The trained part as a PEFT adapter folder, which `peft.PeftModel.from_pretrained` loads onto the base."""
    module.encoder.save_pretrained(folder / "adapter")  # type: ignore[union-attr, operator]
    for path in (folder / "adapter").glob("*.safetensors"):  # which safetensors hides from other users
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


def _load(kind: str, encoder: str, **options: Any) -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError("the language tasks need an extra: pip install -e '.[language]' in a checkout") from None
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    local = data_folder() / encoder  # where there is no hub: a folder of that name beside the data
    try:
        return getattr(transformers, kind).from_pretrained(local if local.is_dir() else encoder, **options)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot load the encoder {encoder!r}: {str(error).splitlines()[0]}") from None
