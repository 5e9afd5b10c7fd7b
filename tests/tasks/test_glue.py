"""RTE, MRPC and SST-2."""

import shutil

import pytest
import torch

from fadas.tasks import TASKS
from fadas.tasks.glue import LAYOUTS, f1, read_tsv
from helpers.folders import read_times

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


def test_files_are_read_as_published(data):
    sentences, labels = read_tsv(LAYOUTS["mrpc"], "train")
    assert len(sentences) == len(labels) == 120
    assert labels[:4] == [0, 1, 0, 1]
    assert all(len(pair) == 2 for pair in sentences)
    assert any('"' in pair[0] for pair in sentences), "a quotation mark is text"
    assert read_tsv(LAYOUTS["sst2"], "dev", limit=5)[1] == [0, 1, 0, 1, 0]


def test_official_files_have_published_counts(real_data, monkeypatch):
    monkeypatch.setenv("FADAS_DATA", str(real_data))
    sizes = {(name, split): len(read_tsv(LAYOUTS[name], split)[1]) for name in LAYOUTS for split in ("train", "dev")}
    assert sizes == {
        ("rte", "train"): 2490,
        ("rte", "dev"): 277,
        ("mrpc", "train"): 3668,
        ("mrpc", "dev"): 408,
        ("sst2", "train"): 67349,
        ("sst2", "dev"): 872,
    }
    assert sum(read_tsv(LAYOUTS["mrpc"], "dev")[1]) == 279


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("sentence\tgrade\nx\t1\n", "expected a column 'label'"),
        ("sentence\tlabel\nx\n", "line 2: expected 2 columns, got 1"),
        ("sentence\tlabel\nx\t7\n", "line 2: expected the label '0' or '1', got '7'"),
        ("sentence\tlabel\n", "no examples"),
    ],
)
def test_bad_files_are_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.setenv("FADAS_DATA", str(tmp_path))
    (tmp_path / "SST-2").mkdir()
    if text is not None:
        (tmp_path / "SST-2" / "train.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        TASKS["sst2"](encoder="tiny")


def test_sentences_are_tokenised_once(data, tiny_bert, monkeypatch):
    shutil.rmtree(data / "cache", ignore_errors=True)  # `first` must not be mapped from a file that is overwritten
    first = TASKS["rte"](clients=4, encoder=tiny_bert)
    cached = set((data / "cache").glob("RTE-*"))
    before = read_times(cached)

    def fail(*arguments, **options):
        raise AssertionError("tokenised again")

    monkeypatch.setattr(transformers.BertTokenizerFast, "__call__", fail)
    again = TASKS["rte"](clients=4, encoder=tiny_bert)
    assert all(torch.equal(a, b) for a, b in zip(first.test, again.test, strict=True))
    assert before == read_times(cached)
    for path in cached:
        path.write_bytes(b"garbage")
    monkeypatch.undo()
    monkeypatch.setenv("FADAS_DATA", str(data))  # undo removed it
    healed = TASKS["rte"](clients=4, encoder=tiny_bert)
    assert torch.equal(healed.test[0], first.test[0])
    assert first.test[1].max() == 1, "the second sentence has another token type"


def test_f1_matches_formula():
    outputs = torch.eye(2)[[1, 1, 1, 0, 0]]
    assert float(f1(outputs, torch.tensor([1, 1, 0, 1, 0]))) == pytest.approx(2 * 2 / (3 + 3))
    assert float(f1(torch.eye(2)[[0, 0]], torch.tensor([0, 0]))) == 0
