"""The commit that a run's summary names."""

import shutil
import subprocess

import pytest

from fadas.experiments import provenance
from helpers.cli import ROOT


@pytest.fixture
def from_git(monkeypatch):
    """The tests name a commit, so that no run asks git. Here one does."""
    monkeypatch.delenv("FADAS_COMMIT")


def test_told_commit_is_taken(monkeypatch):
    monkeypatch.setenv("FADAS_COMMIT", "a copy of 1.2")
    assert provenance.commit() == "a copy of 1.2"


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="no checkout")
def test_commit_of_checkout_is_what_git_says(from_git):
    ask = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    assert provenance.commit().removesuffix("-dirty") == head


def test_commit_of_installed_copy_or_without_git_is_unknown(from_git, monkeypatch, tmp_path):
    module = tmp_path / "src" / "fadas" / "experiments" / "provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.commit() == "unknown", "an installed copy may lie within a repository of something else"
    (tmp_path / ".git").mkdir()
    assert provenance.commit() == "unknown", "a repository that git does not know"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() == "unknown", "no git"
