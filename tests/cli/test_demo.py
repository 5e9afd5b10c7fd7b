"""`fadas demo`."""

from helpers.cli import EXPERIMENTS, ROOT, call_fadas, run_fadas


def test_shipped_experiment_is_the_one_of_the_repository():
    """After a change: cp experiments/demo.toml src/fadas/cli/demo.toml"""
    shipped = ROOT / "src" / "fadas" / "cli" / "demo.toml"
    assert shipped.read_bytes() == (EXPERIMENTS / "demo.toml").read_bytes()


def test_demo_runs_the_experiment_outside_the_checkout(tmp_path):
    data = {"FADAS_DATA": str(ROOT / "build" / "data")}
    text = run_fadas("demo", "--only", "fedams", "--seed", "1", "--out", "here", cwd=tmp_path, **data).stdout
    assert "report: here/report.html" in text
    code, *_ = call_fadas(
        "run", EXPERIMENTS / "demo.toml", "--only", "fedams", "--seed", "1", "--out", tmp_path / "here"
    )
    assert code == 0  # it has finished with the same settings: nothing is trained again
    text = run_fadas("demo", "--only", "fedams", "--seed", "1", "--dry-run", cwd=tmp_path, **data).stdout
    assert "runs in runs/demo: 1; finished, would be skipped: 0;" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]
