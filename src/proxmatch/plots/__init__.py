"""Results as pictures and tables: what ``plot()``, ``str()`` and notebooks show of them.

Matplotlib is imported when something is drawn.
"""

from proxmatch.plots.canvas import encoded, new_figure, rendered
from proxmatch.plots.curves import plot_curves, plot_losses, plot_ranges, plot_scores, plot_trials
from proxmatch.plots.side_by_side import plot_images
from proxmatch.plots.text_tables import Rows, html_table, text_table

__all__ = [
    "Rows",
    "encoded",
    "html_table",
    "new_figure",
    "plot_curves",
    "plot_images",
    "plot_losses",
    "plot_ranges",
    "plot_scores",
    "plot_trials",
    "rendered",
    "text_table",
]
