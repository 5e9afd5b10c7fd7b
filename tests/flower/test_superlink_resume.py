"""A SuperLink with TLS and authenticated SuperNodes, of which some are killed."""

import os
import signal
import subprocess
import time

import pytest

pytest.importorskip("flwr")
from helpers.folders import read_records
from helpers.superlink import SLOW, find_free_port, make_app, wait_for


def make_certificates(folder):
    """A certificate authority and its certificate for the loopback address."""

    def run_openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    folder.mkdir()
    run_openssl(
        "req",
        "-new",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=ca",
        "-days",
        "2",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
    )
    run_openssl(
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
    )
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run_openssl(
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-out",
        "server.pem",
        "-extfile",
        "ext",
    )
    return folder


@SLOW
def test_tls_federation_survives_killed_node_and_server(start_superlink, tmp_path):
    certs = make_certificates(tmp_path / "certs")
    one = start_superlink(
        *("--ssl-certfile", certs / "server.pem", "--ssl-keyfile", certs / "server.key"),
        *("--ssl-ca-certfile", certs / "ca.crt", "--enable-supernode-auth"),
        tls=certs / "ca.crt",
    )
    nodes = []
    for number in range(4):  # the last one is never registered
        key = tmp_path / f"key{number}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
        if number < 3:
            one.command("flwr", "supernode", "register", f"{key}.pub", "here")
        options = ("--superlink", f"127.0.0.1:{one.port}", "--root-certificates", certs / "ca.crt")
        options += ("--auth-supernode-private-key", key, "--port", find_free_port())
        nodes.append(one.spawn("flower-supernode", *options, log=tmp_path / f"node{number}.log"))
    wait_for(lambda: one.log.read_text().count("Activated node_id") == 3, "three nodes")
    wait_for(lambda: "No SuperNode found with the given public key" in one.log.read_text(), "the stranger's refusal")

    # Flower takes up to a minute to miss a node. 26 steps of three seconds last longer on any machine.
    slow = "    import time\n\n    time.sleep(3)\n    config, asked = "
    app = make_app(tmp_path / "app", lambda text: text.replace("    config, asked = ", slow, 1))
    folder = tmp_path / "runs" / "fadas-1"
    settings = {"algorithm": "fadas", "algorithm-eta": 0.01, "num-server-rounds": 26, "concurrency": 3, "buffer": 2}
    settings["folder"] = str(tmp_path / "runs")
    one.run(app, settings)
    wait_for(lambda: len(read_records(folder)) >= 2, "the first steps")
    link = one.processes[0]
    os.kill(link.pid, signal.SIGSTOP)  # like a network that is down for a while
    time.sleep(15)
    os.kill(link.pid, signal.SIGCONT)
    known = len(read_records(folder))
    wait_for(lambda: len(read_records(folder)) > known, "steps after the SuperLink's pause")
    os.killpg(nodes[0].pid, signal.SIGKILL)  # during a job: with three slots, all three nodes are busy

    def find_counted():
        known = read_records(folder)[:-1]  # the checkpoint of the last step may not be written yet
        return known if known[-1]["dropped"] + known[-1]["expired"] else None

    before = wait_for(find_counted, "the count of the dead node's job")
    (server,) = one.find_processes("flwr-serverapp") or one.find_processes("serverapp")[:1]
    os.kill(server, signal.SIGKILL)
    time.sleep(3)
    assert not (folder / "summary.json").exists()
    one.run(app, settings)
    wait_for((folder / "summary.json").exists, "the resumed run")
    records = read_records(folder)
    assert records[: len(before)] == before
    assert [r["step"] for r in records] == list(range(1, 27))
    ids = [job["id"] for r in records for job in r["jobs"]]
    assert len(ids) == len(set(ids)), "no update is applied twice"
    assert [r["updates"] for r in records] == [2 * k for k in range(1, 27)]
    assert records[-1]["dropped"] + records[-1]["expired"] >= 1, "the count must survive the server"
