"""Writing files so that nothing is ever half written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_together(folder: Path, files: dict[str, bytes]) -> None:
    """Write all files beside their places and to the disk, then move them there.

    Args:
        folder: an existing folder.
        files: contents by name.

    Raises:
        OSError: nothing, or the first few files, have been replaced.
    """
    written: list[tuple[str, Path]] = []
    try:
        for name, content in files.items():
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
            written.append((temporary, folder / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for temporary, place in written:
            os.chmod(temporary, 0o644)
            os.replace(temporary, place)
    finally:
        for temporary, _ in written:
            Path(temporary).unlink(missing_ok=True)
