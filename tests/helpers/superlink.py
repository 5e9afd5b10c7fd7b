"""A real SuperLink on the loopback address, and whatever connects to it."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cli import run_fadas
from helpers.processes import wait_until

BIN = Path(sys.executable).parent
PATIENCE = 600  # seconds: on a busy machine Ray takes minutes to start
SLOW = pytest.mark.skipif(not os.environ.get("FADAS_FLOWER"), reason="minutes long: make test-flower")
# The simulation engine with eight nodes.
SIMULATION = ("--federation-config", "num-supernodes=8 client-resources-num-cpus=1")


def find_free_port() -> int:
    """A port that stays free until our process has started: below those that the kernel gives to whoever asks."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Superlink:
    """A SuperLink and its clients. `close` ends every process that was started."""

    def __init__(self, folder, *options, tls=None):
        self.folder, self.port, self.processes = folder, find_free_port(), []
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_UPDATE_CHECK": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        (folder / "home").mkdir()
        security = f'root-certificates = "{tls}"' if tls else "insecure = true"
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{security}\n'
        )
        self.log = folder / "superlink.log"
        self.spawn(
            "flower-superlink",
            *("--disable-runtime-dependency-installation", "--port", str(self.port), *options),
            log=self.log,
        )
        wait_for(lambda: "Starting Flower SuperExec" in self.log.read_text(), "SuperLink")

    def spawn(self, name, *arguments, log):
        with log.open("w") as file:
            process = subprocess.Popen(
                [str(BIN / name), *map(str, arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def command(self, *arguments):
        done = subprocess.run(
            [str(BIN / arguments[0]), *map(str, arguments[1:])], capture_output=True, text=True, env=self.environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, app, config, *options):
        text = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        return self.command("flwr", "run", app, "here", "-c", text, *options)

    def find_processes(self, *words) -> list[int]:
        """Processes of this SuperLink, whatever their parents are: their environment names its home."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"FLWR_HOME={self.folder / 'home'}" in (entry / "environ").read_text(
                    errors="replace"
                ):
                    command = (entry / "cmdline").read_text(errors="replace")
                    if all(word in command for word in words):
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    def close(self):
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in self.find_processes():
            with contextlib.suppress(ProcessLookupError):  # many of them end with their parents
                os.kill(pid, signal.SIGKILL)


def wait_for(condition, what):
    return wait_until(condition, PATIENCE, pause=0.2, what=f"{what}: not")


def make_app(folder, change=lambda text: text):
    """The app that `fadas deploy init` writes, but clients train on the data of their number."""
    run_fadas("deploy", "init", folder)
    client = folder / "app" / "client_app.py"
    text = client.read_text()
    mine = 'int(context.node_config.get("partition-id", asked["fadas-client"]))'
    assert mine in text
    client.write_text(change(text.replace(mine, 'int(asked["fadas-client"])')))
    return folder
