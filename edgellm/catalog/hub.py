"""Files of Hugging Face repositories, fetched with huggingface_hub: its addresses, tokens and retries."""

import functools
import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterator
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
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    # Read here and not left to huggingface_hub, which looks only when it is imported.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    locate = functools.partial(huggingface_hub.hf_hub_url, f"{place.owner}/{place.repo}", place.file, endpoint=endpoint)
    try:
        announced = huggingface_hub.get_hf_file_metadata(locate(revision=place.revision))
    except Exception as error:
        raise _failure(place, error) from error
    if size is not None and announced.size is not None:
        check(str(place), announced.size, "", size=size, sha256=None)
    etag = re.sub(r"\W", "", announced.etag or "")
    if sha256 is None and re.fullmatch("[0-9a-f]{64}", etag):
        sha256 = etag
    size = size if size is not None else announced.size
    partial.mkdir(parents=True, exist_ok=True)
    # By the tag of its content: what came of another version of the file must not be continued.
    part = partial / f"{etag or 'untagged'}.part"
    with open(part, "ab") as file:
        # hf_hub_download begins anew after an interruption, and model files are large.
        done = file.tell() if etag else file.truncate(0)
        require_space(partial, max((size or 0) - done, 0))
        options, quiet = _reporting(http_get, huggingface_hub.utils, progress, size)
        try:
            with quiet:
                if size is None or done < size:
                    http_get(
                        # The commit, not the branch, which may move between two tries.
                        locate(revision=announced.commit_hash or place.revision),
                        file,
                        resume_size=done,
                        headers=build_hf_headers(library_name="edgellm"),
                        expected_size=size,
                        **options,
                    )
        except _Stopped as stopped:
            raise stopped.reason from None
        except Exception as error:
            raise _failure(place, error) from error
    verify_file(part, size=size, sha256=sha256, progress=progress)
    os.replace(part, temp)
    shutil.rmtree(partial, ignore_errors=True)


class _Stopped(BaseException):
    """Carries what a progress callback raised through code that handles exceptions in its own way."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


def _reporting(
    http_get: Callable[..., Any], utils: Any, progress: Progress, size: int | None
) -> tuple[dict[str, Any], AbstractContextManager[Any]]:
    """How to pass progress on instead of printing a bar."""
    if "tqdm_class" not in inspect.signature(http_get).parameters:
        progress(0, size, "downloading")
        return {}, _no_bars(utils)
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
