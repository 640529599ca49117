"""What the page says about an experiment, without its pictures."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from proxmatch.records import Verdict
from proxmatch.report import claim_list, summary
from proxmatch.report.folder import Folder
from proxmatch.report.method_styles import Style, styles
from proxmatch.report.summary import Curve, Denoiser, Summary
from proxmatch.report.table_views import TableView, markdown, tables


@dataclass(frozen=True)
class Digest:
    """The numbers of a page."""

    cells: list[Summary]  # means of every setting
    curves: list[Curve]  # along the iterations
    blocks: list[Denoiser]  # the denoisers
    looks: dict[str, Style]  # of the methods
    tables: list[TableView]  # the main ones
    printed: dict[str, Markup]  # those of tables/, by name
    groups: list[claim_list.Group]  # the claims, by kind
    tally: list[tuple[Verdict, int]]  # how many of each verdict
    claimed: list[Denoiser]  # the denoisers of the claims


def digest(folder: Folder) -> Digest:
    """Everything but the pictures."""
    cells, curves = summary.cells(folder.images), summary.curves(folder.iterations)
    strips = folder.pictures.entries if folder.pictures else []
    settings = [cell.setting for cell in cells] + [curve.setting for curve in curves]
    settings += [strip.setting for strip in strips]
    looks = styles(setting.method for setting in settings)
    blocks = summary.denoisers(settings)
    return Digest(
        cells=cells,
        curves=curves,
        blocks=blocks,
        looks=looks,
        tables=tables(cells, blocks, looks),
        printed={name: markdown(text) for name, text in folder.tables.items()},
        groups=claim_list.groups(folder.claims),
        tally=claim_list.tally(folder.claims),
        claimed=claim_list.blocks(folder.claims),
    )
