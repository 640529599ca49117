"""``proxmatch info``."""

from __future__ import annotations

from proxmatch.commands import _screen
from proxmatch.commands._options import Json


def command(json: Json = False) -> None:
    """Show versions, device, threads and the models that come with proxmatch.

    Example: proxmatch info --json
    """
    import platform
    from importlib.metadata import version

    import torch

    from proxmatch import __version__
    from proxmatch.denoisers import shipped

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    record = {
        "proxmatch": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepinv": version("deepinv"),
        "device": device,
        "threads": torch.get_num_threads(),
        "models": shipped(),
    }
    _screen.show(
        record,
        json,
        f"proxmatch {__version__}, python {record['python']}",
        f"torch {record['torch']}, deepinv {record['deepinv']}",
        f"device: {device}, threads: {record['threads']}",
        f"models: {', '.join(shipped()) or 'none'}",
    )
