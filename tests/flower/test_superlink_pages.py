"""The commands of the deployment pages, against a real SuperLink with Flower's simulation engine."""

import subprocess
from statistics import fmean

import pytest

pytest.importorskip("flwr")
from helpers.cli import ROOT, run_fadas
from helpers.folders import read_records
from helpers.pages import read_blocks
from helpers.superlink import SLOW

GUIDES = ROOT / "docs" / "how-to"


def follow(page: str, one, folder) -> str:
    """Run the commands of a page that need a server, as one script. Return what they print."""
    blocks = read_blocks(GUIDES / page)
    commands = [block.code for block in blocks if block.marks.get("not run", "").startswith("needs the ")]
    config = folder / "home" / "config.toml"
    config.write_text(config.read_text() + f'[superlink.sim]\naddress = "127.0.0.1:{one.port}"\ninsecure = true\n')
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(commands)], capture_output=True, text=True, cwd=folder, env=one.environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@SLOW
def test_commands_of_simulation_page_train_an_app(start_superlink, tmp_path):
    run_fadas("deploy", "init", tmp_path / "my-federation")
    shown = follow("deploy-simulation.md", start_superlink("--insecure", "--simulation"), tmp_path)
    assert "joins as client 7" in shown
    assert "step 30: tau [" in shown
    assert " 60 updates " in shown, "the table of fadas report"


def seconds_per_update(records) -> float:
    """Without the seconds until the first step, in which Ray starts."""
    return (records[-1]["time"] - records[0]["time"]) / (records[-1]["updates"] - records[0]["updates"])


@SLOW
def test_straggler_of_page_delays_fedavg_and_not_fadas_da(start_superlink, tmp_path):
    (lines,) = [block.code for block in read_blocks(GUIDES / "deploy-straggler.md") if block.language == "python"]
    run_fadas("deploy", "init", tmp_path / "slow-node")
    client = tmp_path / "slow-node" / "app" / "client_app.py"
    code, start = client.read_text(), "-> Message:\n"
    assert code.count(start) == 1
    client.write_text(code.replace('"""\n', '"""\nimport time\n', 1).replace(start, start + lines))
    shown = follow("deploy-straggler.md", start_superlink("--insecure", "--simulation"), tmp_path)
    assert " 120 updates " in shown, "the table of fadas report"

    runs = tmp_path / "slow-node" / "runs"
    fast, waiting = read_records(runs / "fadas-da-1"), read_records(runs / "fedavg-1")
    assert seconds_per_update(waiting) > 2 * seconds_per_update(fast)
    assert all(job["tau"] == 0 for record in waiting for job in record["jobs"])
    jobs = [job for record in fast for job in record["jobs"]]
    late = [job for job in jobs if job["start"] > fast[0]["time"]]  # jobs of the beginning waited for Ray
    slow = max(late, key=lambda job: job["end"] - job["start"])
    assert slow["end"] - slow["start"] > 4
    assert slow["tau"] > 2 * fmean(job["tau"] for job in jobs)
