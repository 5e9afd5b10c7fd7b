"""The page about a straggler, followed on Flower's simulation engine."""

import re
from statistics import fmean

import pytest

pytest.importorskip("flwr")
from helpers.cli import ROOT, run_fadas
from helpers.folders import read_records
from helpers.superlink import SLOW, wait_for

PAGE = ROOT / "docs" / "how-to" / "deploy-straggler.md"


def seconds_per_update(records) -> float:
    """Without the seconds until the first step, in which Ray starts."""
    return (records[-1]["time"] - records[0]["time"]) / (records[-1]["updates"] - records[0]["updates"])


@SLOW
def test_straggler_delays_fedavg_and_not_fadas_da(start_superlink, tmp_path):
    text = PAGE.read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", text, re.S)
    engine = re.findall(r"--federation-config '(.+)'", text)
    assert len(set(engine)) == 1
    run_fadas("deploy", "init", tmp_path / "app")
    client = tmp_path / "app" / "app" / "client_app.py"
    code, start = client.read_text(), "-> Message:\n"
    assert code.count(start) == 1
    client.write_text(code.replace('"""\n', '"""\nimport time\n', 1).replace(start, start + lines))

    one = start_superlink("--insecure", "--simulation")
    records = {}
    for name, settings in {
        "fadas-da": {"algorithm-eta": 0.003, "num-server-rounds": 150},
        "fedavg": {"algorithm": "fedavg", "algorithm-eta": 1.0, "num-server-rounds": 12},
    }.items():
        folder = tmp_path / "runs" / f"{name}-1"
        settings["folder"] = str(folder.parent)
        one.run(tmp_path / "app", settings, "--federation-config", engine[0])
        wait_for((folder / "summary.json").exists, "the run")
        records[name] = read_records(folder)
    assert seconds_per_update(records["fedavg"]) > 2 * seconds_per_update(records["fadas-da"])
    jobs = [job for record in records["fadas-da"] for job in record["jobs"]]
    late = [job for job in jobs if job["start"] > 0]  # jobs of the beginning waited for Ray
    slow = max(late, key=lambda job: job["end"] - job["start"])
    assert slow["end"] - slow["start"] > 4
    assert slow["tau"] > 2 * fmean(job["tau"] for job in jobs)
    assert all(job["tau"] == 0 for record in records["fedavg"] for job in record["jobs"])
