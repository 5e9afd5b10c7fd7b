"""Data sets on disk: where they are, how they are verified, and how they are downloaded."""

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

Progress = Callable[[int, int | None], None]  # (bytes so far, total bytes if known)


def data_folder() -> Path:
    """Return the folder of the data sets: the environment variable FADAS_DATA, or data/ in the current folder."""
    return Path(os.environ.get("FADAS_DATA") or "data")


def may_cache() -> bool:
    """Return whether tasks may keep what they computed in the data folder: not if FADAS_CACHE is 0."""
    return os.environ.get("FADAS_CACHE") != "0"


@dataclass(frozen=True)
class Archive:
    """A data set that can be downloaded, with its published checksums.

    Args:
        url: The archive's address, a tar file.
        md5: The archive's MD5.
        folder: The folder in the archive that holds the files. They are unpacked to a folder of that name.
        files: The MD5 of each file, by name.
    """

    url: str
    md5: str
    folder: str
    files: dict[str, str]

    @property
    def path(self) -> Path:
        """The folder with the unpacked files."""
        return data_folder() / self.folder

    def read_file(self, name: str, verify: bool = True) -> bytes:
        """Return the content of a file.

        Args:
            name: The file's name.
            verify: Compare the content with the published MD5.

        Raises:
            ConfigError: The file cannot be read, or is not the published one.
        """
        path = self.path / name
        try:
            content = path.read_bytes()
        except OSError as error:
            hint = f"set FADAS_DATA to the folder that holds {self.folder}, or download it with `fadas data get`"
            raise ConfigError(f"cannot read {path} ({error.strerror}); {hint}") from None
        if verify and (found := hashlib.md5(content).hexdigest()) != self.files[name]:
            raise ConfigError(f"{path} is not the published file: expected MD5 {self.files[name]}, got {found}")
        return content

    def complete(self) -> bool:
        """Return whether all files exist, as published."""
        try:
            return all(self.read_file(name) for name in self.files)
        except ConfigError:
            return False

    def fetch(self, progress: Progress, url: str | None = None) -> Path:
        """Download the archive, verify it and unpack it. An interrupted download is resumed.

        Args:
            progress: Is called with the number of bytes so far, and the total if it is known.
            url: A mirror of the archive. None: the published address.

        Returns:
            The folder with the unpacked files.

        Raises:
            ConfigError: The download failed, or the archive is not the published one.
        """
        data_folder().mkdir(parents=True, exist_ok=True)
        url = url or self.url
        part = data_folder() / (Path(self.url).name + ".part")
        try:
            _download(url, part, progress)
        except OSError as error:  # urllib's errors are OSErrors
            raise ConfigError(f"cannot download {url} ({error}); run the command again to resume") from None
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != self.md5:
            part.unlink()
            raise ConfigError(
                f"{url} is not the published archive: expected MD5 {self.md5}, got {found}; it was deleted"
            )
        try:
            self._unpack(part)
        except (tarfile.TarError, KeyError) as error:
            raise ConfigError(f"cannot unpack {part}: {error}") from None
        for name in self.files:
            self.read_file(name)
        part.unlink()
        return self.path

    def _unpack(self, part: Path) -> None:
        """Write the known files. Anything else in the archive is ignored."""
        with tarfile.open(part) as archive:
            for name in self.files:
                source = archive.extractfile(f"{self.folder}/{name}")
                if source is None:
                    raise tarfile.ReadError(f"{name} is not a regular file")
                self.path.mkdir(exist_ok=True)
                with source, (self.path / name).open("wb") as file:
                    shutil.copyfileobj(source, file)


def _download(url: str, part: Path, progress: Progress, chunk: int = 1 << 18) -> None:
    """Download to the file `part`, or resume where it ends."""
    received = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={received}-"} if received else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # range not satisfiable: the file is complete
            return
        raise
    with response:
        resumed = response.status == 206
        received = received if resumed else 0
        length = response.headers.get("Content-Length")
        total = received + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(chunk):
                file.write(block)
                received += len(block)
                progress(received, total)
    if total is not None and received < total:
        raise OSError(f"the connection closed after {received:,} of {total:,} bytes")
