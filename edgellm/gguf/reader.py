"""A GGUF file, opened: metadata, tensor table and the bytes of the tensors.

The head is read with ordinary reads and copied; tensor data is memory-mapped and never copied, so
opening takes milliseconds whatever the size of the model.

A mapped file must not be made shorter while it is open: on Linux and macOS, touching a page past the
new end kills the process with SIGBUS, and no check can close that window entirely. (Windows does not
let anyone shorten a mapped file.) The policy: ``data`` and ``check_unchanged`` compare the size of the
file with what it was, at the price of one fstat, and raise ModelFormatError; an engine calls
``check_unchanged`` before each step, which leaves only a file cut within a step. Replacing a file by
renaming another over it is always safe. Where files may be cut at any time, ``Reader(path, copy=True)``
reads everything into memory and needs the file no more.
"""

import mmap
import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from edgellm.dtypes import DType
from edgellm.errors import ClosedError, ModelFormatError, ModelNotFoundError
from edgellm.gguf import header
from edgellm.gguf.cursor import HEAD_LIMIT, Cursor, MoreNeededError
from edgellm.gguf.metadata import Metadata
from edgellm.gguf.paths import PathLike, system_path
from edgellm.gguf.tensors import TensorInfo, read_tensors
from edgellm.gguf.text import path_text, quoted

# Most heads fit; a longer one is read again.
_FIRST_READ = 1 << 23


class ModelFile(Protocol):
    """What a single file and a set of split files have in common."""

    @property
    def name(self) -> str:
        """The path, made safe for messages."""

    @property
    def metadata(self) -> Metadata:
        """The key-value pairs."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors by name, in file order."""

    @property
    def nbytes(self) -> int:
        """The size of the file, or of all files, in bytes."""

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor."""

    def type_counts(self) -> Counter[DType]:
        """How many tensors there are of each type."""

    def check_unchanged(self) -> None:
        """Raise ModelFormatError if a mapped file no longer has the size it was opened with."""

    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Reader:
    """One GGUF file of version 2 or 3, little endian. A context manager.

    Everything the file says is checked before the constructor returns. ``metadata`` and ``tensors``
    stay usable after ``close``.
    """

    version: int
    alignment: int
    name: str
    nbytes: int
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]

    def __init__(self, path: PathLike, *, copy: bool = False) -> None:
        """Open a file; ``copy`` reads it into memory instead of mapping it.

        Raises ModelNotFoundError if there is none, ModelFormatError or UnsupportedModelError if it
        cannot be used, OSError if it cannot be read. No handle stays open after an error.
        """
        self.name = path_text(path)
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._on_disk = False
        real = system_path(path)
        try:
            # Opening a named pipe would wait for a writer, so look first.
            mode = os.stat(real).st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise ModelNotFoundError(f"{self.name}: no such file") from None
        except ValueError as error:
            raise ModelNotFoundError(f"{self.name}: not a possible file name: {error}") from None
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise ModelNotFoundError(f"{self.name}: this is {kind}, not a GGUF file")
        with open(real, "rb") as file:
            self.nbytes = os.fstat(file.fileno()).st_size

            def read_head(n: int) -> bytes:
                file.seek(0)
                head = file.read(n)
                if len(head) < n:
                    raise self._cut_short()
                return head

            self._parse(read_head)
            if copy:
                # Anonymous memory, page-aligned like a mapped file.
                self._map = mmap.mmap(-1, self.nbytes)
                file.seek(0)
                if file.readinto(self._map) < self.nbytes:
                    raise self._cut_short()
            else:
                try:
                    self._map = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ)
                except ValueError:
                    raise self._cut_short() from None
                self._on_disk = True
        self._view = memoryview(self._map).toreadonly()

    def _cut_short(self) -> ModelFormatError:
        return ModelFormatError(f"{self.name}: file became shorter than {self.nbytes} bytes while it was being opened")

    @classmethod
    def from_buffer(cls, buffer: bytes | bytearray | memoryview | mmap.mmap, name: str = "<memory>") -> Self:
        """Read a GGUF file that lies in memory; tensor data stays in ``buffer``."""
        self = cls.__new__(cls)
        self.name = name
        self._map = None
        self._on_disk = False
        self._view = memoryview(buffer).toreadonly().cast("B")
        self.nbytes = len(self._view)
        view = self._view
        self._parse(lambda n: bytes(view[:n]))
        return self

    def _parse(self, read_head: Callable[[int], bytes]) -> None:
        n = min(self.nbytes, _FIRST_READ)
        while True:
            cursor = Cursor(read_head(n), self.nbytes, self.name)
            try:
                self.version = header.read_version(cursor)
                n_tensors = cursor.u64("the number of tensors")
                n_pairs = cursor.u64("the number of key-value pairs")
                self.metadata = header.read_metadata(cursor, n_pairs)
                self.alignment = header.alignment_of(cursor, self.metadata)
                self.tensors = MappingProxyType(read_tensors(cursor, n_tensors, self.alignment))
                return
            except MoreNeededError:
                n = min(4 * n, self.nbytes, HEAD_LIMIT)

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor, read-only and not copied. Raises KeyError for unknown names.

        The view must not be read after the file was shortened; it stays valid after ``close``.
        """
        info = self.tensors[name]
        self.check_unchanged()
        assert self._view is not None
        return self._view[info.offset : info.offset + info.nbytes]

    def type_counts(self) -> Counter[DType]:
        """How many tensors there are of each type: what the file is, whatever it is called."""
        return Counter(info.dtype for info in self.tensors.values())

    def check_unchanged(self) -> None:
        """Raise ModelFormatError if the mapped file no longer has the size it was opened with.

        Raises ClosedError after ``close``. Copied files and buffers cannot change.
        """
        if self._view is None:
            raise ClosedError(f"{self.name} was closed")
        if not self._on_disk:
            return
        assert self._map is not None
        size = self._map.size()
        if size != self.nbytes:
            raise ModelFormatError(
                f"{self.name}: file was {self.nbytes} bytes when it was opened and is {size} now; "
                "it must not be changed while it is in use: open it again"
            )

    def close(self) -> None:
        """Unmap the file, at once or when the last view of its tensors is gone. May be called twice."""
        view, self._view = self._view, None
        mapped, self._map = self._map, None
        if view is not None:
            view.release()
        if mapped is not None:
            # While views handed out by ``data`` are alive this fails, and the last of them unmaps.
            with suppress(BufferError):
                mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Reader of {quoted(self.name)}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"
