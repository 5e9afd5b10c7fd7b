"""Results for other programs."""

import csv
import io
import json

import pytest

from fadas.report.frames import TABLES
from helpers.cli import run_fadas
from helpers.folders import make_record, write_run


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1, 0.5), make_record(2, 0.75)])
    (tmp_path / "a-0" / "partition.json").write_text('{"format": 3, "counts": [[1, 2, 0], [0, 3, 1]]}')
    return tmp_path


def test_csv_is_the_frame_of_the_runs(folder):
    (row,) = csv.DictReader(io.StringIO(run_fadas("export", folder).stdout))
    assert (row["algorithm"], row["seed"], float(row["score"]), row["step"]) == ("a", "0", 0.625, "2")


@pytest.mark.parametrize("table", TABLES)
def test_tables_have_a_row_for_each_run_step_job_or_client(folder, table):
    rows = list(csv.DictReader(io.StringIO(run_fadas("export", folder, "--table", table).stdout)))
    assert len(rows) == {"runs": 1, "steps": 2, "jobs": 4, "clients": 2, "labels": 6}[table]


def test_comparison_goes_by_the_metric_and_has_the_columns_that_are_asked_for(folder):
    head, _ = run_fadas(
        "export", folder, "--metric", "accuracy", "--columns", "train_loss, interval"
    ).stdout.splitlines()
    assert head.split(",")[:3] == ["algorithm", "final accuracy", "95 % interval"]
    assert "final train_loss" in head


def test_latex_is_a_tabular_with_escaped_text(folder):
    text = run_fadas("export", folder, "--format", "latex").stdout
    assert r"\begin{tabular}{l" in text
    assert "final accuracy" in text
    assert r"75.0\%" in text
    assert text.count(r"\\") == 2
    assert "% final accuracy: mean of the last 2 evaluations" in text


def test_latex_shows_names_as_they_are(tmp_path):
    """A bracket after a line break would be its argument, and two hyphens would become a dash."""
    write_run(tmp_path / "a-0", [make_record(1, 0.5)], label='[2pt] a--b_1 <"x"|y> 50%')
    row = run_fadas("export", tmp_path, "--format", "latex").stdout.split("\\midrule\n")[1]
    shown = r"{}[2pt] a-{}-b\_1 \textless{}\char34{}x\char34{}\textbar{}y\textgreater{} 50\%"
    assert row.startswith(f"{shown} & 50.0\\%")


def test_table_without_rows_is_an_error(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1, 0.5)])
    assert "these runs have no labels; choose" in run_fadas("export", tmp_path, "--table", "labels", code=2).stderr


def test_tables_for_readers_have_short_numbers(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1, 1 / 3)])
    assert "| 0.333333 |" in run_fadas("export", tmp_path, "--format", "markdown", "--table", "runs").stdout
    assert "0.3333333333333333" in run_fadas("export", tmp_path).stdout


def test_markdown_is_a_table(folder):
    head, rule, row = run_fadas("export", folder, "--format", "markdown").stdout.splitlines()
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| a |")


def test_markdown_of_steps_leaves_missing_values_empty(tmp_path):
    write_run(tmp_path / "a-0", [make_record(1), make_record(2, 0.75)])
    *_, first, _ = run_fadas("export", tmp_path, "--format", "markdown", "--table", "steps").stdout.splitlines()
    assert "nan" not in first


def test_parquet_goes_to_a_file(folder):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    run_fadas("export", folder, "--format", "parquet", "--table", "steps", "--out", folder / "steps.parquet")
    assert pandas.read_parquet(folder / "steps.parquet")["accuracy"].tolist() == [0.5, 0.75]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "excel"], "--format must be one of csv, latex, markdown, parquet, got 'excel'"),
        (["--table", "rows"], "--table must be one of comparison, runs, steps, jobs, clients, labels, got 'rows'"),
        (["--table", "jobs", "--columns", "interval"], "further columns are for the comparison"),
        (["--format", "parquet", "--table", "comparison"], "export the runs, steps, jobs or clients as Parquet"),
    ],
)
def test_mistake_gives_one_line(folder, options, message):
    done = run_fadas("export", folder, *options, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_folder_gives_one_line(tmp_path):
    assert "does not exist" in run_fadas("export", tmp_path / "no", code=2).stderr


def test_json_of_a_run_and_its_row_agree(folder):
    summary = json.loads((folder / "a-0" / "summary.json").read_text())
    (row,) = csv.DictReader(io.StringIO(run_fadas("export", folder).stdout))
    assert float(row["score"]) == summary["accuracy"]
