"""Commands in forks of a process that has imported everything. A process of its own would import torch each time.

The server is a clean process: no test runs in it. Each command is a child of it, with its own folder, environment and
output.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SERVER = """
import json, os, signal, sys
import torch, fadas.cli.app, fadas.experiments.run, fadas.report.html, fadas.report.figures, fadas.cli.terminal
import fadas.simulation.simulator, fadas.experiments.sweep, fadas.experiments.prepare, fadas.tasks.digits
from fadas.cli import main
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child:
        sys.stdout.write(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) + "\\n")
        sys.stdout.flush()
        continue
    for name, number in (("in", 0), ("out", 1), ("err", 2)):
        opened = os.open(request[name], os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = ["fadas", *request["arguments"]]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        import atexit
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""


@cache
def _server() -> subprocess.Popen:
    """The server of this process."""
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.kill)
    return server


def run_in_fork(arguments: list[str], cwd: str | None, environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a fadas command. Return its exit code, output and error output."""
    server = _server()
    assert server.stdin
    assert server.stdout
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        out.touch()
        err.touch()
        request = {"arguments": arguments, "cwd": str(cwd or os.getcwd()), "environment": environment}
        request |= {"in": os.devnull, "out": str(out), "err": str(err)}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = json.loads(server.stdout.readline())
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
