"""Where data sets lie, how they are checked, and how they are fetched."""

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fadas.errors import ConfigError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all


def data_folder() -> Path:
    """The folder that holds the data sets: the environment's FADAS_DATA, else data/ below the current folder."""
    return Path(os.environ.get("FADAS_DATA") or "data")


@dataclass(frozen=True)
class Archive:
    """A data set that can be downloaded, with its published checksums."""

    url: str
    md5: str
    folder: str  # what it unpacks to
    files: dict[str, str]  # name -> MD5

    @property
    def path(self) -> Path:
        return data_folder() / self.folder

    def read(self, name: str, verify: bool = True) -> bytes:
        """One file's content; an error says what was expected where."""
        path = self.path / name
        try:
            content = path.read_bytes()
        except OSError as error:
            hint = "set FADAS_DATA to the folder that holds it, or download it with `fadas data get`"
            raise ConfigError(f"expected {path} ({error.strerror}); {hint}") from None
        if verify and (found := hashlib.md5(content).hexdigest()) != self.files[name]:
            raise ConfigError(f"{path} is not the published file: its MD5 is {found}, expected {self.files[name]}")
        return content

    def complete(self) -> bool:
        """Are all files there, as published?"""
        try:
            return all(self.read(name) for name in self.files)
        except ConfigError:
            return False

    def fetch(self, progress: Progress, url: str | None = None) -> Path:
        """Download (continuing where a broken download stopped), verify, unpack."""
        data_folder().mkdir(parents=True, exist_ok=True)
        url = url or self.url
        part = data_folder() / (Path(self.url).name + ".part")
        try:
            _download(url, part, progress)
        except OSError as error:  # urllib's errors are OSErrors
            raise ConfigError(f"downloading {url} failed ({error}); run the command again to continue") from None
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != self.md5:
            part.unlink()
            raise ConfigError(f"the download from {url} has MD5 {found}, expected {self.md5}; it was deleted")
        try:
            self._unpack(part)
        except (tarfile.TarError, KeyError) as error:
            raise ConfigError(f"{part} cannot be unpacked: {error}") from None
        for name in self.files:
            self.read(name)
        part.unlink()
        return self.path

    def _unpack(self, part: Path) -> None:
        """The files that are known, and no others: whatever else an archive names is not written anywhere."""
        with tarfile.open(part) as archive:
            for name in self.files:
                source = archive.extractfile(f"{self.folder}/{name}")
                if source is None:
                    raise tarfile.ReadError(f"{name} is no file")
                self.path.mkdir(exist_ok=True)
                with source, (self.path / name).open("wb") as file:
                    shutil.copyfileobj(source, file)


def _download(url: str, part: Path, progress: Progress, chunk: int = 1 << 18) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to fetch
            return
        raise
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(chunk):
                file.write(block)
                have += len(block)
                progress(have, total)
    if total is not None and have < total:
        raise OSError(f"the connection closed after {have:,} of {total:,} bytes")
