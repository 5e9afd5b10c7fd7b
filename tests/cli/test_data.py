"""`fadas data get`."""

from helpers.cli import run_fadas


def test_data_get_refuses_wrong_downloads(archive_server, tmp_path):
    target = tmp_path / "elsewhere"
    wrong = run_fadas("data", "get", "cifar10", "--data-dir", target, "--url", f"{archive_server.url}/good", code=2)
    assert "expected MD5 c32a1d4ab5d03f1284b67883e8d87530" in wrong.stderr
    assert "connection" in run_fadas("data", "get", "cifar100", "--url", "http://127.0.0.1:9/x", code=2).stderr.lower()
    assert "did you mean 'cifar10'" in run_fadas("data", "get", "cifar1", code=2).stderr


def test_data_get_finds_existing_data(real_data):
    assert "already in" in run_fadas("data", "get", "cifar100", "--data-dir", real_data).stdout
