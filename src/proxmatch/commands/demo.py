"""``proxmatch demo``."""

from __future__ import annotations

from pathlib import Path

from proxmatch.commands._options import Out


def command(out: Out = Path("demo-out")) -> None:
    """Degrade embedded photographs and reconstruct them with the right and the wrong prior.

    Example: proxmatch demo --out demo-out
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    with console.status("loading deepinv and the models") as status:
        from proxmatch import demo as job

        result = job.run(out, progress=status.update)
    table = Table(title="PnP-PGD on embedded photographs, mean PSNR in dB")
    for name in job.HEADER:
        left = name in job.HEADER[:3]
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in result.rows:
        table.add_row(*job.cells(row))
    console.print(table)
    for file in result.files:
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)
