"""Files of Hugging Face repositories, fetched with huggingface_hub, which resumes by itself."""

import inspect
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from edgellm.catalog.cache import Progress, check, require_space, verify_file
from edgellm.catalog.entry import HubFile
from edgellm.errors import DownloadError


def fetch(
    place: HubFile, temp: Path, partial: Path, *, size: int | None, sha256: str | None, progress: Progress
) -> None:
    """Fetch one file to `temp`.

    `size` and `sha256` are checked if given; else those that the hub announces, where it announces them.
    What is there of an interrupted download stays in the folder `partial` and is continued.

    Raises:
        DownloadError: huggingface_hub is not installed, cannot fetch the file, or the bytes are wrong.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise DownloadError(
            f"{place} needs the package huggingface_hub: pip install edgellm[hf] (or give the path of a model file)"
        ) from None
    # Read here and not left to huggingface_hub, which looks only when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    repo = f"{place.owner}/{place.repo}"
    try:
        url = huggingface_hub.hf_hub_url(repo, place.file, revision=place.revision, endpoint=endpoint)
        announced = huggingface_hub.get_hf_file_metadata(url)
    except Exception as error:
        raise _failure(place, error) from error
    if size is not None and announced.size is not None:
        check(str(place), announced.size, "", size=size, sha256=None)
    if sha256 is None and re.fullmatch("[0-9a-f]{64}", announced.etag or ""):
        sha256 = announced.etag
    size = size if size is not None else announced.size
    partial.mkdir(parents=True, exist_ok=True)
    require_space(partial, size or 0)
    options, quiet = _reporting(huggingface_hub, progress, size)
    try:
        with quiet:
            fetched = huggingface_hub.hf_hub_download(
                repo, place.file, revision=place.revision, endpoint=endpoint, local_dir=partial, **options
            )
    except _Stopped as stopped:
        raise stopped.reason from None
    except Exception as error:
        raise _failure(place, error) from error
    os.replace(fetched, temp)
    shutil.rmtree(partial, ignore_errors=True)
    verify_file(temp, size=size, sha256=sha256, progress=progress)


class _Stopped(BaseException):
    """Carries what a progress callback raised through code that handles exceptions in its own way."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


def _reporting(
    huggingface_hub: Any, progress: Progress, size: int | None
) -> tuple[dict[str, Any], AbstractContextManager[Any]]:
    """How to pass progress on instead of printing a bar."""
    if "tqdm_class" not in inspect.signature(huggingface_hub.hf_hub_download).parameters:
        progress(0, size, "downloading")
        return {}, _no_bars(huggingface_hub.utils)
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, initial: int = 0, **kwargs: Any) -> None:
            # tqdm takes arguments that its subclasses in huggingface_hub add, and must not print.
            super().__init__(total=kwargs.get("total"), initial=initial, disable=True)
            self.done = initial

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            try:
                progress(self.done, size, "downloading")
            except BaseException as reason:
                raise _Stopped(reason) from reason

    return {"tqdm_class": Bar}, nullcontext()


@contextmanager
def _no_bars(utils: Any) -> Iterator[None]:
    before = utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            utils.enable_progress_bars()


def _failure(place: HubFile, error: Exception) -> DownloadError:
    lines = str(error).strip().splitlines() or [""]
    return DownloadError(
        f"cannot fetch {place}: {type(error).__name__}: {lines[0]} "
        "(check the name, the network and HF_TOKEN, or give the path of a model file)"
    )
