"""Weights that training starts from: any task, from TOML and Python, checked against the network."""

import dataclasses
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fadas
from fadas.errors import ConfigError
from fadas.experiments.prepare import make_plan, make_simulation, make_task as prepare_task
from fadas.runs.same_run import differing_settings, same_run
from fadas.tasks import TASKS
from fadas.tasks.task import Task
from fadas.tasks.weights import load_weights
from helpers.cli import import_path, run_fadas
from helpers.data_files import choose_options
from helpers.experiments import BASE, resolve_text
from helpers.training import LOCAL, make_task, run_simulation


def same_state(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def write_weights(path, seed=5, **options):
    """Weights of the digits' network, from another seed than the run's."""
    save_file(TASKS["digits"](clients=12, **options).module(seed).state_dict(), path)
    return path


@pytest.mark.parametrize("name", TASKS)
def test_every_task_starts_from_given_weights(name, data, tmp_path):
    task = TASKS[name](clients=7, **choose_options(name, data))
    state = {key: tensor.contiguous() for key, tensor in task.module(5).state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    for given in (state, tmp_path / "w.safetensors", str(tmp_path / "w.safetensors")):
        again = dataclasses.replace(task, weights=given)
        assert same_state(again.module(6), task.module(5))
    assert not same_state(task.module(6), task.module(5))


def test_weights_can_be_set_later_and_are_read_once(tmp_path):
    path, task = write_weights(tmp_path / "w.safetensors"), TASKS["digits"](clients=12)
    kept = dataclasses.replace(task, weights=path)
    task.weights = path
    assert same_state(task.module(0), kept.module(1))
    path.unlink()
    assert same_state(kept.module(0), TASKS["digits"](clients=12).module(5))


@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize("executor", ["inline", "batched", "processes"])
def test_run_continues_from_model_of_another(executor, batchnorm):
    """The first model of the second run is the last one of the first, with BatchNorm's statistics and counters."""
    task = make_task(batchnorm=batchnorm)
    plan = fadas.plan(fadas.Schedule(4, 2), clients=8, delays=fadas.Mild(), steps=3, seed=1)
    first = fadas.simulate(plan, task, fadas.FedBuff(), LOCAL, executor="inline")
    list(first)
    second = dataclasses.replace(task, weights=first.state_dict())
    simulation = fadas.simulate(plan, second, fadas.FedBuff(), LOCAL, executor=executor)
    before = simulation.state_dict()
    assert before.keys() == first.state_dict().keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in first.state_dict().items())
    list(simulation)
    assert not torch.equal(simulation.server.model.params, first.server.model.params)


def test_run_with_weights_of_its_own_seed_is_the_same_run():
    task, plan = make_task(), fadas.plan(fadas.Schedule(4, 2), clients=8, delays=fadas.Mild(), steps=3, seed=1)
    given = dataclasses.replace(task, weights=task.module(1).state_dict())
    one, other = (run_simulation(plan, each, fadas.FADAS())[1] for each in (task, given))
    assert torch.equal(one.params, other.params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("2.bias"), r"they lack '2\.bias'\. Use the names of its state_dict\(\)$"),
        (lambda w: w.update(head=w.pop("2.bias")), r"they lack '2\.bias', and the network has no 'head'"),
        (
            lambda w: w.update({"net.2.bias": w.pop("2.bias")}),
            r"the network has no 'net\.2\.bias' \(did you mean '2\.bias'\?\)",
        ),
        (lambda w: w.clear(), r"they lack '0\.weight', '0\.bias', '2\.weight' and 1 more\."),
        (
            lambda w: w.update({"0.bias": torch.zeros(4)}),
            r"'0\.bias' has the shape \[4\], and the network needs \[5\]$",
        ),
        (
            lambda w: w.update({"0.bias": torch.zeros(5).half()}),
            r"'0\.bias' is torch\.float16, and the network needs torch\.float32\. Convert it with tensor\.to",
        ),
        (lambda w: w["0.bias"].fill_(torch.nan), r"'0\.bias' holds NaN or infinite values$"),
        (lambda w: w.update({"0.bias": [0.0] * 5}), r"'0\.bias' must be a tensor, got list$"),
    ],
)
def test_unsuitable_weights_are_refused_on_one_line(change, message):
    task = make_task()
    weights = {name: tensor.clone() for name, tensor in task.module().state_dict().items()}
    change(weights)
    with pytest.raises(ConfigError, match=message) as caught:
        dataclasses.replace(task, weights=weights).module()
    assert "\n" not in str(caught.value)


def test_frozen_parameters_may_be_left_out_and_are_not_changed_elsewhere():
    base = nn.Linear(6, 5).requires_grad_(False)
    state = {"0.weight": torch.ones(5, 6), "0.bias": base.bias.clone(), "1.weight": torch.ones(3, 5)}
    state["1.bias"] = torch.ones(3)

    def model():
        return nn.Sequential(base, nn.Linear(5, 3))

    task = Task(model, make_task().clients, weights={name: state[name] for name in ("1.weight", "1.bias")})
    assert torch.equal(task.module()[1].weight, torch.ones(3, 5))
    assert task.module()[0] is base
    before, module = base.weight, model()
    load_weights(module, state)
    assert torch.equal(module[0].weight, torch.ones(5, 6))
    assert not module[0].weight.requires_grad
    assert module[0].weight is not before
    assert not torch.equal(before, torch.ones(5, 6)), "frozen tensors may be shared with other modules"


def test_adapter_of_lora_run_can_be_used(data, tmp_path):
    pytest.importorskip("peft")
    task = TASKS["rte"](clients=4, encoder="tiny", max_length=20)
    trained = task.module(5)
    with torch.no_grad():
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    task.save(trained, tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    pairs = zip(dataclasses.replace(task, weights=path).module(6).parameters(), trained.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs if pair[0].requires_grad)
    other = TASKS["rte"](clients=4, encoder="tiny", max_length=20, rank=2)
    with pytest.raises(ConfigError, match=r"lora_A\.default\.weight' has the shape \[1, 32\], and the network needs"):
        dataclasses.replace(other, weights=path).module()
    partial = {name: tensor for name, tensor in load_file(path).items() if "lora_A" not in name}
    with pytest.raises(ConfigError, match=r"they lack 'encoder\..*lora_A\.default\.weight', .* and 3 more"):
        dataclasses.replace(task, weights=partial).module()


WITH_WEIGHTS = BASE.replace("clients = 12", 'clients = 12\nweights = "start.safetensors"')


def test_weights_of_experiment_are_relative_to_its_file(tmp_path, monkeypatch):
    write_weights(tmp_path / "start.safetensors")
    monkeypatch.chdir("/")
    config = resolve_text(tmp_path, WITH_WEIGHTS)
    assert config.tables["task"]["weights"] == str(tmp_path / "start.safetensors")
    simulation = make_simulation(config, task := prepare_task(config), make_plan(config, task))
    expected = load_file(tmp_path / "start.safetensors")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in simulation.state_dict().items())


def test_weights_of_option_are_relative_to_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    write_weights(tmp_path / "here" / "mine.safetensors")
    monkeypatch.chdir(tmp_path / "here")
    config = resolve_text(tmp_path, overrides=["task.weights=mine.safetensors"])
    assert config.weights.path == str(tmp_path / "here" / "mine.safetensors")


def test_content_of_weights_counts_as_setting_and_their_place_does_not(tmp_path):
    write_weights(tmp_path / "start.safetensors")
    one = resolve_text(tmp_path, WITH_WEIGHTS).tables
    shutil.copy(tmp_path / "start.safetensors", tmp_path / "copy.safetensors")
    moved = resolve_text(tmp_path, WITH_WEIGHTS.replace("start.", "copy.")).tables
    assert same_run(one, moved)
    write_weights(tmp_path / "start.safetensors", seed=6)
    changed = resolve_text(tmp_path, WITH_WEIGHTS).tables
    assert [text.split()[0] for text in differing_settings(one, changed)] == ["task.weights_digest"]
    without = resolve_text(tmp_path).tables
    assert not same_run(one, without)
    assert "weights" not in without["task"]
    assert "weights_digest" not in without["task"]


def test_saved_settings_notice_changed_weights(tmp_path):
    path = write_weights(tmp_path / "start.safetensors")
    saved = resolve_text(tmp_path, WITH_WEIGHTS).tables["task"]["weights_digest"]
    again = WITH_WEIGHTS.replace("[schedule]", f'weights_digest = "{saved}"\n[schedule]')
    assert resolve_text(tmp_path, again).weights.digest == saved
    write_weights(path, seed=6)
    with pytest.raises(ConfigError, match=r"task\.weights: .* has changed since these settings were saved; restore"):
        resolve_text(tmp_path, again)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"none.safetensors"', r"task\.weights: cannot read .*none\.safetensors \(No such file or directory\)"),
        ('"."', r"task\.weights: .* is a folder; name the file, such as .*model\.safetensors"),
        ("7", r"task\.weights must be a string, got 7"),
    ],
)
def test_unreadable_weights_are_refused_before_the_task_is_made(tmp_path, value, message):
    with pytest.raises(ConfigError, match=message):
        resolve_text(tmp_path, BASE.replace("clients = 12", f"clients = 12\nweights = {value}"))


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x08\0\0\0\0\0\0\0{}      "])
def test_damaged_weights_are_refused(tmp_path, content):
    (tmp_path / "start.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^task\.weights = '.*start\.safetensors': .*(is not a|do not fit)"):
        prepare_task(resolve_text(tmp_path, WITH_WEIGHTS))


def test_weights_of_other_network_are_refused_by_command(tmp_path):
    write_weights(tmp_path / "start.safetensors", hidden=32)
    (tmp_path / "x.toml").write_text(WITH_WEIGHTS)
    done = run_fadas("run", tmp_path / "x.toml", "--out", tmp_path / "o", code=2)
    assert (
        "the weights do not fit the network: '0.weight' has the shape [32, 64], and the network needs [64, 64]"
        in done.stderr
    )
    assert not (tmp_path / "o").exists()


def test_misspelt_weights_are_suggested(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown key 'task\.weigths'; did you mean 'task\.weights'\?"):
        resolve_text(tmp_path, overrides=["task.weigths=a"])


def make_own_task(clients: int) -> Task:
    return make_task(clients)


def make_pretrained_task(clients: int, weights: str = "imagenet") -> Task:
    assert weights == "none"
    return make_task(clients)


def test_own_task_that_knows_nothing_of_weights_starts_from_a_runs_model(tmp_path):
    text = BASE.replace('"digits"', '"tasks.test_weights:make_own_task"')
    (tmp_path / "first.toml").write_text(text)
    again = text.replace("clients = 12", 'clients = 12\nweights = "runs/first/fadas-0/model.safetensors"')
    (tmp_path / "second.toml").write_text(again)
    for name in ("first", "second"):
        run_fadas("run", f"{name}.toml", "--allow-code", "--no-report", cwd=tmp_path, PYTHONPATH=import_path())
    models = [load_file(tmp_path / "runs" / name / "fadas-0" / "model.safetensors") for name in ("first", "second")]
    assert models[0].keys() == models[1].keys()
    assert not torch.equal(models[0]["0.weight"], models[1]["0.weight"])


def test_own_task_with_weights_of_its_own_gets_them(tmp_path, monkeypatch):
    monkeypatch.setenv("FADAS_ALLOW_CODE", "1")
    own = BASE.replace('"digits"', '"tasks.test_weights:make_pretrained_task"')
    config = resolve_text(tmp_path, own.replace("clients = 12", 'clients = 12\nweights = "none"'))
    assert config.weights is None
    assert config.tables["task"]["weights"] == "none"
    assert prepare_task(config).weights is None


def test_app_of_flower_takes_weights(tmp_path):
    pytest.importorskip("flwr")
    from fadas.flower import task_from_run_config

    path = write_weights(tmp_path / "w.safetensors")
    settings = {"task": "digits", "num-partitions": 12, "seed": 1, "task-weights": str(path)}
    assert same_state(task_from_run_config(settings).module(1), TASKS["digits"](clients=12).module(5))
    write_weights(path, hidden=32)
    with pytest.raises(ConfigError, match=r"^task-weights = .*w\.safetensors': the weights do not fit the network"):
        task_from_run_config(settings)
    with pytest.raises(ConfigError, match=r"^task-weights: cannot read "):
        task_from_run_config({**settings, "task-weights": "/none"})


def test_app_from_experiment_keeps_weights(tmp_path):
    pytest.importorskip("flwr")
    from fadas.cli.projects.from_experiment import app_settings
    from fadas.experiments.experiment_file import read_experiment
    from fadas.flower import task_from_run_config

    path = write_weights(tmp_path / "start.safetensors")
    (tmp_path / "x.toml").write_text(WITH_WEIGHTS)
    settings = app_settings(read_experiment(tmp_path / "x.toml"), "fadas")
    assert settings["task-weights"] == str(path)
    assert same_state(task_from_run_config(settings).module(0), TASKS["digits"](clients=12).module(5))
