"""Models split over several files, name-00001-of-0000N.gguf, as one.

Each part is a whole GGUF file with the keys ``split.no`` (from 0) and ``split.count``; the model's
metadata is in the first part, and ``split.tensors.count`` counts the tensors of all. Any part may be
opened: its name and its keys tell where the others lie, which is beside it.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Self

from edgellm.dtypes import DType
from edgellm.errors import ModelFormatError, ModelNotFoundError
from edgellm.gguf.metadata import Metadata
from edgellm.gguf.paths import PathLike, system_path
from edgellm.gguf.reader import ModelFile, Reader
from edgellm.gguf.tensors import TensorInfo
from edgellm.gguf.text import path_text, quoted

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE | re.DOTALL)

_MAX_LISTED = 5


class ShardedReader:
    """The parts of a split model, behind the interface of one Reader. A context manager.

    ``metadata`` is that of the first part; the ``shard`` of a TensorInfo counts parts from 0.
    """

    name: str
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]

    def __init__(self, readers: Sequence[Reader]) -> None:
        """``readers`` are all parts in order; they belong to this object from now on.

        Raises ModelFormatError if a tensor is in two parts or the number of tensors is not as promised.
        """
        self._readers = tuple(readers)
        first = readers[0]
        self.name = first.name
        self.metadata = first.metadata
        tensors: dict[str, TensorInfo] = {}
        for shard, reader in enumerate(readers):
            for name, info in reader.tensors.items():
                if name in tensors:
                    other = readers[tensors[name].shard].name
                    raise ModelFormatError(f"{reader.name}: tensor {quoted(name)} is also in {other}")
                tensors[name] = replace(info, shard=shard)
        promised = self.metadata.get_int("split.tensors.count", len(tensors))
        if promised != len(tensors):
            raise ModelFormatError(
                f"{self.name}: key 'split.tensors.count' is {promised}, "
                f"but the {len(readers)} parts have {len(tensors)} tensors"
            )
        self.tensors = MappingProxyType(tensors)

    @property
    def nbytes(self) -> int:
        """The size of all files together, in bytes."""
        return sum(reader.nbytes for reader in self._readers)

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor, as ``Reader.data``."""
        return self._readers[self.tensors[name].shard].data(name)

    def type_counts(self) -> Counter[DType]:
        """How many tensors there are of each type, as ``Reader.type_counts``."""
        return sum((reader.type_counts() for reader in self._readers), Counter())

    def check_unchanged(self) -> None:
        """As ``Reader.check_unchanged``, for every part."""
        for reader in self._readers:
            reader.check_unchanged()

    def close(self) -> None:
        """Close every part. May be called twice."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ShardedReader of {quoted(self.name)}: {len(self._readers)} parts, {len(self.tensors)} tensors>"


def open_model(path: PathLike, *, copy: bool = False) -> ModelFile:
    """Open a model of one file or, given any of its parts, of several.

    Raises what ``Reader`` raises, and ModelNotFoundError naming the parts that are missing. No handle
    stays open after an error.
    """
    with ExitStack() as stack:
        reader = stack.enter_context(Reader(path, copy=copy))
        count = reader.metadata.get_int("split.count", 1)
        if count <= 1:
            stack.pop_all()
            return reader
        index = reader.metadata.get_int("split.no")
        paths = _part_paths(system_path(path), reader.name, index, count)
        parts = [reader if i == index else stack.enter_context(Reader(part, copy=copy)) for i, part in enumerate(paths)]
        for i, part_reader in enumerate(parts):
            _check_part(part_reader, i, count)
        model = ShardedReader(parts)
        stack.pop_all()
        return model


def _part_paths(path: str, shown: str, index: int, count: int) -> list[str]:
    """The paths of all parts, of which ``path`` is number ``index``; all exist."""
    folder, file_name = os.path.split(path)
    match = _PART.fullmatch(file_name)
    if match is None:
        raise ModelFormatError(
            f"{shown}: this is part {index + 1} of {count} of a split model, but its name does not say so; "
            f"give the parts names like model-{index + 1:05}-of-{count:05}.gguf"
        )
    if int(match["number"]) != index + 1 or int(match["count"]) != count:
        raise ModelFormatError(
            f"{shown}: the name says part {int(match['number'])} of {int(match['count'])}, "
            f"but keys 'split.no' and 'split.count' say part {index + 1} of {count}"
        )
    paths = []
    missing: list[str] = []
    for number in range(1, count + 1):
        part = os.path.join(folder, f"{match['stem']}-{number:05}-of-{match['count']}{match['suffix']}")
        paths.append(part)
        if not os.path.exists(part):
            missing.append(path_text(os.path.basename(part)))
            if len(missing) > _MAX_LISTED:
                missing[-1] = "..."
                break
    if missing:
        raise ModelNotFoundError(f"{shown}: the other parts must lie beside it; missing: {', '.join(missing)}")
    return paths


def _check_part(reader: Reader, index: int, count: int) -> None:
    found = reader.metadata.get_int("split.no"), reader.metadata.get_int("split.count")
    if found != (index, count):
        raise ModelFormatError(
            f"{reader.name}: expected part {index + 1} of {count}, "
            f"but keys 'split.no' and 'split.count' say part {found[0] + 1} of {found[1]}"
        )
