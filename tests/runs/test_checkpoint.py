"""Checkpoint files."""

import threading

import pytest
import torch

from fadas.errors import Damaged
from fadas.runs import checkpoint
from fadas.runs.folder import checkpoints


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "huge header", "digest only"])
def test_damaged_checkpoint_is_detected(damage, tmp_path):
    path = checkpoint.write_checkpoint(tmp_path, 3, {"x": torch.arange(100.0)}, {"version": 3})
    content = path.read_bytes()
    good, values = checkpoint.read_checkpoint(path)
    assert torch.equal(good["x"], torch.arange(100.0))
    assert values == {"version": 3}
    import hashlib

    huge = (2**62).to_bytes(8, "little") + b"{}"
    path.write_bytes(
        {
            "cut": content[:-7],
            "flip": content[:200] + bytes([content[200] ^ 1]) + content[201:],
            "empty": b"",
            "text": b"hello\n" * 40,
            "huge header": hashlib.sha256(huge).hexdigest().encode() + b"\n" + huge,
            "digest only": content[:65],
        }[damage]
    )
    with pytest.raises(checkpoint.Damaged):
        checkpoint.read_checkpoint(path)


def test_every_dtype_is_kept_or_refused(tmp_path):
    numbers = torch.tensor([[0, 1], [2, 3]])
    kinds = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.float64)
    tensors = {str(kind): numbers.to(kind) for kind in kinds} | {"none": torch.zeros(0), "one": torch.tensor(True)}
    found, _ = checkpoint.read_checkpoint(checkpoint.write_checkpoint(tmp_path, 1, tensors, {}))
    assert {name: tensor.dtype for name, tensor in found.items()} == {name: t.dtype for name, t in tensors.items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    with pytest.raises(ValueError, match="cannot hold 'odd'"):
        checkpoint.write_checkpoint(tmp_path, 2, {"odd": numbers.to(torch.complex128)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001.ckpt"]


def test_two_checkpoints_survive_failed_write(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        checkpoint.write_checkpoint(tmp_path, step, {"x": torch.ones(3)}, {})
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-000000003.ckpt", "checkpoint-000000002.ckpt"]

    def raise_disk_full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", raise_disk_full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write_checkpoint(tmp_path, 4, {"x": torch.ones(3)}, {})
    monkeypatch.undo()
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["checkpoint-000000002.ckpt", "checkpoint-000000003.ckpt"]
    assert torch.equal(checkpoint.read_checkpoint(checkpoints(tmp_path)[0])[0]["x"], torch.ones(3))


def test_background_writer_waits_only_for_previous_write(tmp_path, monkeypatch):
    gate, order = threading.Event(), []
    whole = checkpoint.write_checkpoint

    def wait_and_write(folder, step, tensors, values):
        gate.wait(300)
        order.append(step)
        return whole(folder, step, tensors, values)

    monkeypatch.setattr(checkpoint, "write_checkpoint", wait_and_write)
    writer = checkpoint.BackgroundWriter()
    writer.write(tmp_path, 1, {"x": torch.ones(3)}, {})
    assert order == []
    assert not writer.ready()
    gate.set()
    writer.write(tmp_path, 2, {"x": torch.ones(3)}, {})
    writer.wait()
    assert order == [1, 2]
    assert [path.name for path in checkpoints(tmp_path)] == [
        "checkpoint-000000002.ckpt",
        "checkpoint-000000001.ckpt",
    ]
    writer.close()


def test_background_writer_raises_error_on_next_call(tmp_path):
    writer = checkpoint.BackgroundWriter()
    writer.write(tmp_path / "nowhere", 1, {"x": torch.ones(3)}, {})
    with pytest.raises(FileNotFoundError):
        writer.wait()
    writer.wait()  # the error was raised once
    writer.close()


def test_keyed_checksum_refuses_checkpoints_written_without_the_key(tmp_path, monkeypatch):
    plain = checkpoint.write_checkpoint(tmp_path, 1, {"x": torch.ones(2)}, {})
    monkeypatch.setenv("FADAS_CHECKPOINT_KEY", "secret")
    with pytest.raises(Damaged, match="its checksum is wrong, or FADAS_CHECKPOINT_KEY is another"):
        checkpoint.read_checkpoint(plain)
    keyed = checkpoint.write_checkpoint(tmp_path, 2, {"x": torch.ones(2)}, {"n": 1})
    assert checkpoint.read_checkpoint(keyed)[1] == {"n": 1}
    monkeypatch.setenv("FADAS_CHECKPOINT_KEY", "guess")
    with pytest.raises(Damaged, match="its checksum is wrong"):
        checkpoint.read_checkpoint(keyed)
    monkeypatch.delenv("FADAS_CHECKPOINT_KEY")
    with pytest.raises(Damaged, match=r"its checksum is wrong$"):
        checkpoint.read_checkpoint(keyed)
