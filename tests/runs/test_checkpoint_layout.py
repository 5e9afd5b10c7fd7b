"""The bytes of a checkpoint, and writers that are used in odd ways."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load

from fadas.runs import checkpoint
from fadas.runs.checkpoint import BackgroundWriter, read_checkpoint, write_checkpoint


def test_file_is_a_checksum_and_an_aligned_safetensors_file(tmp_path):
    for length in range(1, 18):  # of a name, so that the header has every length
        tensors = {"n" * length: torch.arange(3.0), "second": torch.ones(2, dtype=torch.float16)}
        content = write_checkpoint(tmp_path, length, tensors, {"version": length}).read_bytes()
        digest, payload = content[:64], content[65:]
        assert digest.decode() == hashlib.sha256(payload).hexdigest()
        assert content[64:65] == b"\n"
        header = int.from_bytes(payload[:8], "little")
        assert header % 8 == 0, "the tensors are aligned"
        assert json.loads(json.loads(payload[8 : 8 + header])["__metadata__"]["values"]) == {
            "format": 3, "version": length,
        }  # fmt: skip
        assert all(torch.equal(load(payload)[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.arange(10.0)[::3],
        torch.nn.Parameter(torch.ones(2, 2)),
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.tensor([1.5, -2.0], dtype=torch.float16),
    ],
    ids=["transposed", "strided", "parameter", "number", "empty", "half"],
)
def test_tensors_of_every_kind_are_kept(tensor, tmp_path):
    found, _ = read_checkpoint(write_checkpoint(tmp_path, 1, {"before": torch.ones(3), "x": tensor}, {}))
    assert torch.equal(found["x"], tensor.detach())
    assert found["x"].dtype == tensor.dtype
    assert torch.equal(found["before"], torch.ones(3))


def test_checkpoint_without_tensors_keeps_its_values(tmp_path):
    values = {"nested": {"list": [1, 2.5, None, "é"]}, "version": 3}
    assert read_checkpoint(write_checkpoint(tmp_path, 1, {}, values)) == ({}, values)


def test_tensor_that_cannot_be_stored_leaves_no_draft(tmp_path):
    with pytest.raises(ValueError, match="a checkpoint cannot hold 'odd', a tensor of"):
        write_checkpoint(tmp_path, 1, {"odd": torch.zeros(1, dtype=torch.complex64)}, {})
    assert not list(tmp_path.iterdir())


def test_closed_background_writer_takes_nothing_more(tmp_path):
    writer = BackgroundWriter()
    writer.write(tmp_path, 1, {"x": torch.ones(3)}, {})
    writer.close()
    assert (tmp_path / "checkpoint-000000001.ckpt").exists(), "closing waits for the last one"
    with pytest.raises(RuntimeError, match="after shutdown"):
        writer.write(tmp_path, 2, {"x": torch.ones(3)}, {})


def test_failed_write_is_reported_when_the_next_is_due(tmp_path):
    writer = BackgroundWriter()
    writer.write(tmp_path / "nowhere", 1, {"x": torch.ones(3)}, {})
    with pytest.raises(FileNotFoundError):
        writer.write(tmp_path, 2, {"x": torch.ones(3)}, {})
    writer.write(tmp_path, 3, {"x": torch.ones(3)}, {})
    writer.wait()
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["checkpoint-000000003.ckpt"]
    writer.close()
