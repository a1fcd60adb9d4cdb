"""The user's folder for libraries that are compiled on the user's machine, and then loaded as code.

No file there is believed that another user may have written. All is looked at through open
descriptors: what a path names may change between a look and a use, and what a descriptor names does
not.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from regraph.messages import logger


class Unusable(Exception):
    """The folder cannot be used; the text says why, and what to do."""


class Cache:
    """The folder, held (`with`) so that no other process of the user's makes a file meanwhile.

    Raises:
        Unusable: The folder is not the user's own.
        OSError: The folder cannot be made or read.
    """

    def __init__(self) -> None:
        self.path = _base() / "regraph"
        self._folder = _open_folder(self.path)
        self._lock = self._take_lock()

    def __enter__(self) -> "Cache":
        return self

    def __exit__(self, *_: Any) -> None:
        for descriptor in (self._folder, self._lock):
            if descriptor is not None:
                os.close(descriptor)

    def load(self, name: str) -> ctypes.CDLL:
        """Loads a library of the folder, and keeps it loaded until the process ends.

        Raises:
            FileNotFoundError: There is none, or it is not as `put` wrote it.
            OSError: This machine cannot load it.
        """
        file = self._own(name)
        try:
            digest = self._own(_digest_name(name))
            try:
                if _contents(digest) != _digest_line(name, _contents(file)):
                    raise FileNotFoundError(f"{self.path / name} is not as it was made")
            finally:
                os.close(digest)
            # The C library opens the file of the descriptor, whatever its path names by now. It
            # knows libraries by the names that they were loaded by, and would take another file
            # with this descriptor's number for this one: the descriptor stays open. The name has
            # the process's number in place of `self`, for programs that read the library by it:
            # PyTorch's stacks of C++ frames are made by another process.
            return ctypes.CDLL(f"/proc/{os.readlink('/proc/self')}/fd/{file}")
        except BaseException:
            os.close(file)
            raise

    def put(self, name: str, library: bytes) -> None:
        """Writes a library, in place of what has its name.

        Raises:
            OSError: It cannot be written.
        """
        # Killed between both, the process leaves two that do not agree: the library is made again.
        self._write(name, library)
        self._write(_digest_name(name), _digest_line(name, library))

    def _own(self, name: str) -> int:
        """A descriptor of a file that no other user can have written; a link is none."""
        # Without the last, opening a pipe would wait for its writer.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(name, flags, dir_fd=self._folder)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or not _is_own(found):
            os.close(file)
            raise FileNotFoundError(f"{self.path / name} is not the user's own file")
        return file

    def _write(self, name: str, data: bytes) -> None:
        fresh = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        file = os.open(fresh, flags, 0o600, dir_fd=self._folder)
        try:
            with open(file, "wb") as output:
                output.write(data)
            # In one step: a process without the lock reads the old file or the new one.
            os.replace(fresh, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=self._folder)
            raise

    def _take_lock(self) -> int | None:
        """Waits for other processes that hold the folder.

        None where it cannot be locked: then several may make the same library, and the last stays.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            lock = os.open("lock", flags, 0o600, dir_fd=self._folder)
        except OSError:
            return None
        try:
            # Another user's may be held for ever.
            if _is_own(os.fstat(lock)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    logger.warning("waiting for another process, which compiles a library")
                    fcntl.flock(lock, fcntl.LOCK_EX)
                return lock
        except OSError:
            pass
        os.close(lock)
        return None


def _base() -> Path:
    """The folder of all caches. The XDG specification has relative paths ignored."""
    for folder in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(folder):
            return Path(folder)
    raise Unusable("there is no home folder: set XDG_CACHE_HOME to a folder of your own")


def _open_folder(path: Path) -> int:
    """A descriptor of a folder that is the user's own and that no other user can read or write."""
    # All with the mode that the specification names: `makedirs` would give it to the last alone.
    parents = [path.parent, *path.parent.parents]
    missing = [part for part in (path, *parents) if not os.path.lexists(part)]
    for part in reversed(missing):
        part.mkdir(0o700, exist_ok=True)
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
        folder = os.open(path, flags)
    except NotADirectoryError as error:
        raise Unusable(
            f"{path} is a link or a file, and not a folder: remove it, or set XDG_CACHE_HOME to a "
            "folder of your own"
        ) from error
    found = os.fstat(folder)
    try:
        if found.st_uid != os.geteuid():
            raise Unusable(
                f"{path} belongs to user {found.st_uid}, who can put any library there: set "
                "XDG_CACHE_HOME to a folder of your own"
            )
        if found.st_mode & 0o077:
            # What others have put there is theirs, or says another name in its digest.
            os.fchmod(folder, 0o700)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _contents(file: int) -> bytes:
    with open(file, "rb", closefd=False) as opened:
        return opened.read()


def _digest_name(name: str) -> str:
    return f"{name}.sha256"


def _digest_line(name: str, library: bytes) -> bytes:
    """A line that `sha256sum --check` understands."""
    return f"{hashlib.sha256(library).hexdigest()}  {name}\n".encode()
