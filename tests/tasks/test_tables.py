"""Tables, CSV and Parquet, with a column that names the client."""

import json
import sys

import numpy as np
import pandas
import pytest
import torch
from safetensors import safe_open

from fadas.experiments.prepare import make_task as prepare_task
from fadas.experiments.resolve import resolve
from fadas.runs.same_run import same_run
from fadas.tasks.files import files
from helpers.cli import import_path, run_fadas
from helpers.experiments import resolve_text
from helpers.training import train_briefly

CSV = """user,age,colour,weight,grade
ann,30,red,1.5,good
bob,40,blue,2.5,bad
ann,50,red,3.5,bad
cid,60,green,4.5,good
bob,70,red,5.5,good
ann,80,blue,6.5,fair
"""
NAMES = {"target": "grade", "client": "user"}


def write_table(folder, text=CSV, name="data.csv"):
    path = folder / name
    path.write_text(text)
    return path


def write_many(folder, rows=120, clients=6, name="data.csv"):
    """Rows whose label and number follow from the inputs."""
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"user": rng.integers(0, clients, rows), "a": rng.normal(50, 9, rows)})
    table["b"] = rng.normal(-3, 0.1, rows)
    table["side"] = np.where(table["a"] > 50, "right", "left")
    table["price"] = 1000 + 10 * table["a"]
    path = folder / name
    table.to_parquet(path) if name.endswith("parquet") else table.to_csv(path, index=False)
    return path


def load(path, clients=3, **options):
    return files(str(path), "linear", clients, **{**NAMES, **options})


def test_rows_go_to_the_client_that_their_column_names(tmp_path):
    task = load(write_table(tmp_path), features=("age", "weight"))
    assert task.sizes == [3, 2, 1], "ann, bob, cid: in the order of first appearance"
    assert task.clients[0][0].tolist() == [[30, 1.5], [50, 3.5], [80, 6.5]]
    assert [labels.tolist() for _, labels in task.clients] == [[2, 0, 1], [0, 2], [2]], "bad, fair, good"
    assert task.clients[0][0].dtype == torch.float32
    assert task.clients[0][1].dtype == torch.int64
    assert task.test is None
    assert task.label_counts() == [[1, 1, 1], [1, 0, 1], [0, 0, 1]]
    assert task.module()(task.clients[0][0]).shape == (3, 3)


def test_all_other_columns_are_features(tmp_path):
    task = load(write_table(tmp_path), one_hot=("colour",))
    assert task.clients[2][0].tolist() == [[60, 0, 1, 0, 4.5]], "age, blue, green, red, weight"
    assert task.module()[1].in_features == 5


def test_parquet_is_read_like_csv(tmp_path):
    pytest.importorskip("pyarrow")
    table = pandas.read_csv(write_table(tmp_path))
    kinds = {"user": "category", "colour": "string[pyarrow]", "age": "Int64"}
    for name, written in (("a", table), ("b", table.astype(kinds)), ("c", table.set_index("user"))):
        written.to_parquet(tmp_path / f"{name}.parquet")
        one, other = (
            load(tmp_path / f"{name}.parquet", one_hot=("colour",)),
            load(tmp_path / "data.csv", one_hot=("colour",)),
        )
        assert one.sizes == other.sizes
        assert all(torch.equal(a, b) for a, b in zip(one.clients.data, other.clients.data, strict=True))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"needs pyarrow: run pip install '\.\[parquet\]' in a checkout"):
        load(tmp_path / "x.parquet")


def test_clients_are_text_in_csv(tmp_path):
    text = "user,x,grade\n007,1,a\n7,2,b\n"
    assert load(write_table(tmp_path, text), 2).sizes == [1, 1]


@pytest.mark.parametrize(
    ("column", "classes"),
    [("7,10,7,10,7,7", [7, 10]), ("True,False,True,True,True,True", [False, True]), ("2.0,1.0,2.0,2.0,2,2", [1, 2])],
)
def test_labels_may_be_numbers_or_truth_values(tmp_path, column, classes):
    values = column.split(",")
    text = "user,x,grade\n" + "".join(f"u{row},{row},{value}\n" for row, value in enumerate(values))
    task = load(write_table(tmp_path, text), 6)
    first = [data[1].item() for data in task.clients]
    assert first == [classes.index(eval(value)) for value in values]


def test_file_of_test_data_is_read_with_the_training_tables_categories(tmp_path):
    other = "grade,weight,colour,age\ngood,1,purple,10\nbad,2,red,20\n"
    task = load(write_table(tmp_path), one_hot=("colour",), test=str(write_table(tmp_path, other, "test.csv")))
    assert task.test[0].tolist() == [[10, 0, 0, 0, 1], [20, 0, 0, 1, 2]], "purple is unknown"
    assert task.test[1].tolist() == [2, 0]
    assert "accuracy" in task.evaluate(task.module())


def test_share_of_each_client_is_held_out(tmp_path):
    path = write_many(tmp_path)
    whole, task = (files(str(path), "mlp", 6, target="side", client="user", test=test) for test in (None, 0.25))
    assert sum(task.sizes) + len(task.test[-1]) == 120
    assert all(size == whole - round(whole / 4) for size, whole in zip(task.sizes, whole.sizes, strict=True))
    again = files(str(path), "mlp", 6, 0.2, target="side", client="user", test=0.25)
    assert sum(again.sizes) + len(again.test[-1]) == sum(task.sizes)
    rows = {tuple(row) for row in again.test[0].tolist()}
    assert not rows & {tuple(row) for row in task.test[0].tolist()}, "validation data are no test data"
    same = files(str(path), "mlp", 6, target="side", client="user", test=0.25)
    assert torch.equal(same.test[0], task.test[0])


@pytest.mark.parametrize("test", [0.25, "file"])
def test_standardized_columns_have_mean_0_and_deviation_1(tmp_path, test):
    path = write_many(tmp_path)
    plain, task = (
        files(
            str(path), "linear", 6, target="price", client="user", kind="regression", one_hot=("side",),
            standardize=standardize, test=str(path) if test == "file" else test,
        )
        for standardize in (False, True)
    )  # fmt: skip
    before, after = (torch.cat([data[0] for data in one.clients]).double() for one in (plain, task))
    scaled = [0, 1]  # a and b; side=left and side=right stay
    assert after[:, scaled].mean(0).abs().max() < 1e-5
    assert (after[:, scaled].std(0, correction=0) - 1).abs().max() < 1e-5
    assert torch.equal(after[:, 2:], before[:, 2:])
    mean, deviation = before[:, 0].mean(), before[:, 0].std(correction=0)
    assert torch.allclose(task.test[0][:, 0].double(), (plain.test[0][:, 0].double() - mean) / deviation, atol=1e-5)
    assert abs(float(torch.cat([data[1] for data in task.clients]).mean())) < 1e-5
    module = task.module()
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    y = torch.cat([data[1] for data in plain.clients]).double()
    expected = (plain.test[1].double() - y.mean()).abs().mean()
    assert task.evaluate(module)["mae"] == pytest.approx(float(expected), rel=1e-4), "in the unit of the table"


def test_constant_column_becomes_zeros(tmp_path):
    text = "user,x,z,grade\na,5,1,p\nb,5,2,q\n"
    task = load(write_table(tmp_path, text), 2, standardize=True)
    assert [data[0][0, 0].item() for data in task.clients] == [0, 0]


def test_numbers_are_predicted(tmp_path):
    path = write_many(tmp_path)
    task = files(
        str(path), "linear", 6, target="price", client="user", kind="regression", features=("a",), standardize=True,
        test=0.2,
    )  # fmt: skip
    assert task.clients[0][1].shape == (task.sizes[0], 1)
    assert task.label_counts() is None
    metrics = train_briefly(task)[-1].metrics
    assert metrics.keys() == {"rmse", "mae", "loss"}
    assert task.loss(torch.zeros(3, 1), torch.ones(3, 1)).shape == (3,), "one value per example"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CSV, {"target": None}, r"target is missing: name the column of .*data\.csv to predict"),
        (CSV, {"client": None}, r"client is missing: name the column of .*data\.csv that says which client"),
        (CSV, {"target": "grades"}, r"unknown target column of .*data\.csv: 'grades'; did you mean 'grade'\?"),
        (CSV, {"client": "users"}, r"unknown client column of .*: 'users'; did you mean 'user'\?"),
        (CSV, {"features": ("agee",)}, r"unknown feature column of .*: 'agee'; did you mean 'age'\?"),
        (CSV, {"one_hot": ("color",)}, r"unknown feature column of .*: 'color'; did you mean 'colour'\?"),
        (CSV, {"features": ("age",), "one_hot": ("colour",)}, r"one_hot: the column 'colour' is not among"),
        (CSV, {"features": ("age", "grade")}, r"features: 'grade' is the target"),
        (CSV, {}, r"the column 'colour' holds 'red' in row 1, which is no number; list 'colour' in task\.one_"),
        (CSV.replace("50", "unknown"), {"features": ("age",)}, r"the column 'age' holds 'unknown' in row 3, which"),
        (CSV.replace("50", ""), {"features": ("age",)}, r"row 3 has no value in the column 'age' \(it is empty, or"),
        (CSV.replace("green", "NA"), {"one_hot": ("colour",)}, r"row 4 has no value in the column 'colour'"),
        (CSV.replace("cid", ""), {"features": ("age",)}, r"row 4 has no value in the column 'user'"),
        (CSV.replace("fair", ""), {"features": ("age",)}, r"row 6 has no value in the column 'grade'"),
        (CSV.replace("3.5", "-inf"), {"features": ("weight",)}, r"row 3 has -inf in the column 'weight', which"),
        (CSV.replace("3.5", "1e60"), {"features": ("weight",)}, r"row 3 has 1e\+60 in the column 'weight', which"),
        (CSV, {"target": "weight", "features": ("age",)}, r"row 1 has 1\.5 in the target column 'weight', .* task\."),
        (CSV, {"kind": "regression", "features": ("age",)}, r"'grade' holds 'good' in row 1, .* set task\.kind to "),
        (CSV, {"features": ()}, r"data\.csv has no columns of inputs"),
        ("user,grade\na,1\nb,2\n", {}, r"data\.csv has no columns of inputs"),
        ("user,x,grade\na,1,p\nb,2,p\n", {}, r"the target column 'grade' has one value only, 'p'"),
        ("user,x,grade\n", {}, r"data\.csv has no rows"),
        ("", {}, r"cannot read .*data\.csv \(No columns to parse from file\)"),
        ('user,x,grade\n"a,1,p\n', {}, r"cannot read .*data\.csv \("),
        (CSV, {"features": ("age",), "test": "none.csv"}, r"cannot read none\.csv \(No such file or directory\)"),
        (CSV, {"features": ("age",), "test": 0.01}, r"test \(0\.01\) splits no client's examples into two parts"),
    ],
)  # fmt: skip
def test_unsuitable_tables_are_refused_on_one_line(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(write_table(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


def test_wrong_number_of_clients_names_the_right_one(tmp_path):
    message = r"the number of different values in the column 'user' of .*data\.csv \(3\), got 5"
    with pytest.raises(ValueError, match=message):
        load(write_table(tmp_path), 5, features=("age",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,grade\n1,great\n", r"test\.csv: row 1 has 'great' in the target column 'grade', a class that no"),
        ("grade\ngood\n", r"unknown feature column of .*test\.csv: 'age'"),
        ("age\n1\n", r"unknown target column of .*test\.csv: 'grade'"),
        ("age,grade\n,good\n", r"test\.csv: row 1 has no value in the column 'age'"),
    ],
)  # fmt: skip
def test_unsuitable_test_tables_are_refused(tmp_path, text, message):
    path = write_table(tmp_path, text, "test.csv")
    with pytest.raises(ValueError, match=message):
        load(write_table(tmp_path), features=("age",), test=str(path))


def test_dates_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame(
        {"user": ["a", "b"], "day": pandas.to_datetime(["2024-01-01", "2024-01-02"]), "grade": [0, 1]}
    )
    table.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(
        ValueError, match=r"the column 'day' holds Timestamp\('2024-01-01.*in row 1, which is no number"
    ):
        load(tmp_path / "x.parquet", 2)


def test_damaged_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(ValueError, match=r"cannot read .*x\.parquet \(") as caught:
        load(tmp_path / "x.parquet")
    assert "\n" not in str(caught.value)


def test_columns_of_wide_tables_are_not_all_listed(tmp_path):
    names = [f"column{number}" for number in range(500)]
    text = ",".join(["user", *names]) + "\n" + ",".join(["a"] * 501) + "\n"
    with pytest.raises(ValueError, match="unknown target column") as caught:
        load(write_table(tmp_path, text), target="zzz")
    assert len(str(caught.value)) < 1000


def test_column_with_too_many_values_is_refused(tmp_path):
    text = "user,id,grade\n" + "".join(f"a,n{row},{row % 2}\n" for row in range(1100))
    with pytest.raises(ValueError, match=r"the column 'id' of .* has 1,100 different values; at most 1,000 can become"):
        load(write_table(tmp_path, text), 1, one_hot=("id",))


EXPERIMENT = """
[task]
name = "files"
path = "tables/data.csv"
test = "tables/test.csv"
model = "mlp"
target = "side"
client = "user"
standardize = true
clients = 6
hidden = 8
features = ["a", "b"]
[schedule]
concurrency = 3
buffer = 2
[local]
lr = 0.1
[run]
updates = 60
eval_every = 10
[algorithms.fadas]
eta = 0.01
[sweep.fadas]
eta = [0.01, 0.03]
"""


def test_experiment_on_a_table_needs_no_code(tmp_path):
    (tmp_path / "tables").mkdir()
    write_many(tmp_path / "tables")
    write_many(tmp_path / "tables", name="test.csv", rows=40)
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    (tmp_path / "elsewhere").mkdir()
    run_fadas("run", "../x.toml", cwd=tmp_path / "elsewhere", PYTHONPATH=import_path())
    folder = tmp_path / "elsewhere" / "runs" / "x" / "fadas-0"
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    assert metrics["accuracy"] > 0.8
    assert sum(map(sum, json.loads((folder / "partition.json").read_text())["counts"])) == 120
    use = json.loads(safe_open(folder / "model.safetensors", "pt").metadata()["fadas.table"])
    assert (use["inputs"], use["target"], use["classes"]) == (["a", "b"], "side", ["left", "right"])
    assert use["scaling"]["b"] == pytest.approx([-3, 0.1], abs=0.05)
    again = run_fadas("run", folder / "config.toml", "--out", folder.parent, cwd=tmp_path / "elsewhere")
    assert "skipped, it has finished" in again.stderr
    more = ["--set", f"task.weights={folder / 'model.safetensors'}", "--set", "run.updates=20", "--out", "more"]
    run_fadas("run", "../x.toml", *more, "--no-report", cwd=tmp_path / "elsewhere")
    swept = run_fadas("sweep", "../x.toml", "--seed", "3", cwd=tmp_path / "elsewhere")
    assert "validation accuracy" in swept.stdout


def test_mistake_in_a_table_is_one_line_of_the_command(tmp_path):
    write_table(tmp_path)
    (tmp_path / "x.toml").write_text(EXPERIMENT.replace("tables/", ""))
    done = run_fadas("run", "x.toml", cwd=tmp_path, code=2)
    assert done.stderr == f"fadas: task: unknown target column of {tmp_path}/data.csv: 'side'; known: {KNOWN}\n"


KNOWN = "age, colour, grade, user, weight"


def test_run_of_earlier_version_with_files_is_the_same_run(tmp_path):
    config = resolve_text(tmp_path, EXPERIMENT)
    new = {"target", "client", "features", "test", "one_hot", "standardize", "kind", "hidden"}
    plain = {key: value for key, value in config.tables["task"].items() if key not in new}
    now = resolve({"name": "x", **config.tables, "task": plain}, "fadas", 0).tables
    old = {**now, "task": plain}
    assert same_run(old, now)
    assert not same_run(old, {**now, "task": {**now["task"], "kind": "regression"}})


def test_only_files_of_data_are_relative_to_the_experiment(tmp_path):
    """Another task may have a setting `test` that means something else."""
    write_many(tmp_path)
    inside = EXPERIMENT.replace("tables/", "").replace('test = "test.csv"', "test = 0.2")
    config = resolve_text(tmp_path, inside)
    assert config.tables["task"]["path"] == str(tmp_path / "data.csv")
    assert config.tables["task"]["test"] == 0.2
    assert len(prepare_task(config).test[-1]) == 24
    other = resolve_text(tmp_path, inside.replace("test = 0.2", 'test = "small"'))
    assert other.tables["task"]["test"] == "small"
