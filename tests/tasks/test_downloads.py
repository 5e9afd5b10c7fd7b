"""Downloads from a server on the loopback address."""

import pytest

from fadas.errors import ConfigError
from fadas.tasks.downloads import data_folder
from helpers.downloads import CONTENT, EVIL, GOOD, MORE, describe_archive


def test_fetch_downloads_and_unpacks(archive_server):
    seen = []
    wanted = describe_archive(f"{archive_server.url}/good")
    assert not wanted.complete()
    path = wanted.fetch(lambda done, total: seen.append((done, total)))
    assert (path / "one.bin").read_bytes() == CONTENT
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert wanted.complete()
    assert not list(data_folder().glob("*.part"))


@pytest.mark.parametrize("then", ["good", "norange"])
def test_broken_download_is_continued(archive_server, then):
    with pytest.raises(ConfigError, match=r"cannot download .*run the command again"):
        describe_archive(f"{archive_server.url}/cut").fetch(lambda done, total: None)
    half = len(GOOD) // 2
    assert (data_folder() / "cut.part").stat().st_size == half
    path = describe_archive(f"{archive_server.url}/cut").fetch(
        lambda done, total: None, url=f"{archive_server.url}/{then}"
    )
    assert (path / "one.bin").read_bytes() == CONTENT
    assert archive_server.requests == [("cut", 0), (then, half if then == "good" else 0)]


def test_complete_part_is_not_fetched_again(archive_server):
    data_folder().mkdir()
    (data_folder() / "good.part").write_bytes(GOOD)
    assert describe_archive(f"{archive_server.url}/good").fetch(lambda done, total: None).exists()


def test_wrong_archive_is_refused(archive_server):
    with pytest.raises(ConfigError, match=r"expected MD5 0000, got \w{32}"):
        describe_archive(f"{archive_server.url}/good", md5="0000").fetch(lambda done, total: None)
    assert not (data_folder() / "set").exists()
    assert not list(data_folder().glob("*.part")), "a wrong download must not be resumed"


def test_archive_cannot_write_outside_folder(archive_server):
    with pytest.raises(ConfigError, match="cannot unpack"):
        describe_archive(f"{archive_server.url}/evil", EVIL).fetch(lambda done, total: None)
    describe_archive(f"{archive_server.url}/more", MORE).fetch(lambda done, total: None)
    assert [path.name for path in data_folder().parent.rglob("*.bin")] == ["one.bin"], "only known files are unpacked"
