"""Checkpoint files."""

import hashlib
import threading

import pytest
import torch

from fadas.errors import Damaged
from fadas.runs import checkpoint
from fadas.runs.folder import checkpoints


def seal(payload: bytes) -> bytes:
    """A checkpoint with a valid checksum, whatever it holds."""
    return hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return seal(len(header).to_bytes(8, "little") + header + data)


VALUES = b'{"__metadata__": {"values": %s}}'
CHECKSUM = "its checksum is wrong"
DAMAGE = {
    "cut": (lambda whole: whole[:-7], CHECKSUM),
    "flipped bit": (lambda whole: whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], CHECKSUM),
    "flipped bit of the checksum": (lambda whole: bytes([whole[0] ^ 1]) + whole[1:], CHECKSUM),
    "another line feed": (lambda whole: whole[:64] + b" " + whole[65:], CHECKSUM),
    "empty": (lambda whole: b"", CHECKSUM),
    "text": (lambda whole: b"hello\n" * 40, CHECKSUM),
    "checksum only": (lambda whole: whole[:65], CHECKSUM),
    "huge header": (lambda whole: seal((2**62).to_bytes(8, "little") + b"{}"), "__metadata__"),
    "no header": (lambda whole: seal(b""), "Expecting value"),
    "header of another kind": (lambda whole: with_header(b"[]"), "list indices must be integers"),
    "no values": (lambda whole: with_header(b'{"__metadata__": {}}'), "values"),
    "values that are a list": (lambda whole: with_header(VALUES % b'"[1]"'), "it holds no values"),
    "values of a newer version": (
        lambda whole: with_header(VALUES % b'"{\\"format\\": 99}"'),
        "has format 99, written",
    ),
    "tensors without data": (
        lambda whole: with_header(
            b'{"__metadata__": {"values": "{}"}, "x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}'
        ),
        "deserializ",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_refused_with_the_reason(damage, tmp_path):
    path = checkpoint.write_checkpoint(tmp_path, 3, {"x": torch.arange(100.0)}, {"version": 3})
    good, values = checkpoint.read_checkpoint(path)
    assert torch.equal(good["x"], torch.arange(100.0))
    assert values == {"version": 3}
    change, message = DAMAGE[damage]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(checkpoint.Damaged, match=message):
        checkpoint.read_checkpoint(path)


def test_missing_checkpoint_is_damage(tmp_path):
    with pytest.raises(checkpoint.Damaged, match="No such file"):
        checkpoint.read_checkpoint(tmp_path / "checkpoint-000000001.ckpt")


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
