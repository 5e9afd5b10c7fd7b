"""What `make dist` notices in a distribution."""

import io
import tarfile
import zipfile
from email.message import Message

import pytest

from check_dist import Failed, check_installed, check_sdist, check_wheel, required_names, run

PACKAGE = ["fadas/__init__.py", "fadas/__init__.pyi", "fadas/py.typed", "fadas/cli/demo.toml"]
TRACKED = {".ci/run", "Makefile", "tests/test_x.py", *(f"src/{name}" for name in PACKAGE)}
INFO = ["METADATA", "entry_points.txt", "licenses/LICENSE"]


def write_wheel(folder, names):
    path = folder / "fadas-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in [*names, *(f"fadas-1.0.dist-info/{one}" for one in INFO)]:
            archive.writestr(name, "Name: fadas\nVersion: 1.0\n")
    return path


def write_sdist(folder, names):
    path = folder / "fadas-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"fadas-1.0/{name}"), io.BytesIO())
    return path


def test_complete_distributions_are_accepted(tmp_path):
    assert check_wheel(write_wheel(tmp_path, PACKAGE), TRACKED)["Version"] == "1.0"
    check_sdist(write_sdist(tmp_path, {*TRACKED, "PKG-INFO", "src/fadas.egg-info/SOURCES.txt"} - {".ci/run"}), TRACKED)


def test_wheel_without_a_data_file_or_with_tests_is_refused(tmp_path):
    with pytest.raises(Failed, match=r"lacks fadas/cli/demo\.toml"):
        check_wheel(write_wheel(tmp_path, PACKAGE[:-1]), TRACKED)
    with pytest.raises(Failed, match=r"git does not track: tests/test_x\.py"):
        check_wheel(write_wheel(tmp_path, [*PACKAGE, "tests/test_x.py"]), TRACKED)


def test_sdist_without_tests_or_with_stray_files_is_refused(tmp_path):
    with pytest.raises(Failed, match=r"lacks tests/test_x\.py"):
        check_sdist(write_sdist(tmp_path, TRACKED - {".ci/run", "tests/test_x.py"}), TRACKED)
    with pytest.raises(Failed, match=r"git does not track: notes\.txt"):
        check_sdist(write_sdist(tmp_path, {*TRACKED, "notes.txt"} - {".ci/run"}), TRACKED)


def test_requirements_are_divided_by_extra():
    requirements = ["torch>=2.4", 'tomli; python_version < "3.11"', 'dp-accounting>=0.4; extra == "privacy"']
    assert required_names(requirements) == {"torch", "tomli"}
    assert required_names(requirements, extra=True) == {"dp-accounting"}


def test_installation_with_what_only_an_extra_needs_is_refused():
    metadata = Message()
    metadata["Requires-Dist"] = "torch>=2.4"
    metadata["Requires-Dist"] = 'dp_accounting; extra == "privacy"'
    found = [["fadas", "1.0", [], 1], ["torch", "2.13", [], 1]]
    check_installed(found, metadata, "1.0")
    for name in ("dp-accounting", "pyarrow"):
        with pytest.raises(Failed, match=f"the base installation brought {name}"):
            check_installed([*found, [name, "1.0", [], 1]], metadata, "1.0")
    with pytest.raises(Failed, match="not installed: torch"):
        check_installed(found[:1], metadata, "1.0")


def test_command_that_fails_shows_what_it_printed(tmp_path):
    with pytest.raises(Failed, match="exit code 3\ngone wrong"):
        run("sh", "-c", "echo gone wrong; exit 3", cwd=tmp_path)
