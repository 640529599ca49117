"""The ways to adapt a denoiser and the rows of the experiment, each described once.

``adapt`` and its command, the rows of the experiment, tables, figures, the page and the docs take
names, titles, help and looks from :data:`METHODS`. To add a way to adapt, call
:func:`register`. A control has the color of what it controls, with another line and marker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from proxmatch._internal.palette import BLUE, BROWN, GRAY, GREEN, ORANGE, PINK, RED, SKY
from proxmatch.errors import InputError

Role = Literal["model", "adapted", "aligned", "auto", "baseline"]
LineStyle = Literal["solid", "dashed", "long", "dotted", "dashdot"]
Marker = Literal["circle", "square", "diamond", "triangle", "cross"]

#: The color of the text: black on white, white on black.
INK = "ink"
#: Bound on the gradient of the controls with clipping.
CLIP = 0.02


@dataclass(frozen=True)
class Method:
    """One way, and its row in the experiment.

    Attributes:
        name: in every table.
        label: what to call it in a sentence.
        role: ``model`` as trained, ``adapted`` by training, ``aligned`` without, ``auto`` by the
            library's own choice, ``baseline`` without a learned prior.
        color: ``#rrggbb``, or ``ink``.
        line: of its curves.
        marker: of its points.
        filled: the marker.
        loss: of an adaptation by training, of :data:`proxmatch.losses.LOSSES`.
        optimizer: changes of its optimizer, all else being the same for every row.
        penalty: whether the contractivity penalty is added, which gradient-step denoisers have.
        best: take the weights of the best held-out reconstructions in place of the last ones. A
            third of the images, or a quarter of each, is then not trained on.
        control: what the row is a control for; empty for the rows of the paper and ours.
        option: what ``adapt`` and ``--method`` call it; empty where they do not offer it.
        help: what it does, for them.
    """

    name: str
    label: str
    role: Role
    color: str
    line: LineStyle = "solid"
    marker: Marker = "circle"
    filled: bool = True
    loss: str = ""
    optimizer: dict[str, Any] = field(default_factory=dict)
    penalty: bool = False
    best: bool = False
    control: str = ""
    option: str = ""
    help: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """What decides the result, for the address of a cell."""
        return {
            "role": self.role,
            "loss": self.loss,
            "optimizer": self.optimizer,
            "penalty": self.penalty,
            "best": self.best,
            **({"baseline": self.name} if self.role == "baseline" else {}),
        }


METHODS: dict[str, Method] = {}


def register(name: str, label: str, role: Role, color: str, *look: Any, **more: Any) -> Method:
    """Add a way; the arguments are those of :class:`Method`.

    Example:
        >>> made = register("pm-slow", "PM, slow", "adapted", RED, "long", loss="pm",
        ...                 optimizer={"rate": 1e-4}, option="pm-slow", help="PM, slowly")
        >>> offered()["pm-slow"].help
        'PM, slowly'
        >>> del METHODS["pm-slow"]
    """
    if name in METHODS:
        raise InputError(f"there is a method {name!r} already; choose another name")
    METHODS[name] = Method(name, label, role, color, *look, **more)
    return METHODS[name]


# fmt: off
register("source", "source", "model", GRAY, "dotted", "square")
register("reference", "reference", "model", INK, "long", "diamond")
register("mse", "MSE", "adapted", BLUE, loss="mse", option="mse",
         help="fine-tuning with the squared error")
register("pm", "PM", "adapted", RED, marker="square", loss="pm", option="pm",
         help="proximal matching, the paper's method for LPN")
register("adapm", "AdaPM", "adapted", RED, marker="diamond", loss="pm", penalty=True,
         option="adapm", help="proximal matching with the contractivity penalty, the paper's "
         "method for gradient-step denoisers")
register("l1", "L1", "adapted", ORANGE, "dashdot", "triangle", loss="l1", control="loss",
         option="l1", help="fine-tuning with the absolute error")
register("scaled-mse", "MSE, PM's gradient scale", "adapted", SKY, "dashdot", "triangle",
         loss="scaled-mse", control="gradient scale", option="scaled-mse",
         help="the squared error, scaled like proximal matching, as its control")
register("mse-clip", "MSE, clipped", "adapted", BLUE, "dashed", "circle", False,
         loss="mse", optimizer={"clip": CLIP}, control="clipping")
register("pm-clip", "PM, clipped", "adapted", RED, "dashed", "square", False,
         loss="pm", optimizer={"clip": CLIP}, control="clipping")
register("mse-unclipped", "MSE, unclipped", "adapted", BLUE, "dotted", "cross",
         loss="mse", optimizer={"clip": None}, control="clipping")
register("mse-penalty", "MSE + penalty", "adapted", BLUE, "dashed", "diamond", False,
         loss="mse", penalty=True, control="penalty")
register("mse-best", "MSE, stopped", "adapted", BLUE, "dotted", "triangle", False,
         loss="mse", best=True, control="stopping")
register("pm-best", "PM, stopped", "adapted", RED, "dotted", "triangle", False,
         loss="pm", best=True, control="stopping")
register("adapm-best", "AdaPM, stopped", "adapted", RED, "dotted", "diamond", False,
         loss="pm", penalty=True, best=True, control="stopping")
register("aligned", "aligned", "aligned", GREEN, marker="triangle", option="align",
         help="changes the colors the denoiser sees; no training, one image is enough")
register("auto", "auto", "auto", PINK, marker="diamond", option="auto",
         help="tries several ways, a blend with a Wiener filter among them, and keeps the best")
register("none", "no denoiser", "baseline", BROWN, "dotted", "cross")
register("wiener", "Wiener filter", "baseline", BROWN, "dashdot", "square", False)
register("tv", "total variation", "baseline", BROWN, "dashed", "triangle", False)
# fmt: on


@dataclass(frozen=True)
class FamilyInTables:
    """A family of denoisers in the experiment.

    Attributes:
        label: what to call it in a table.
        long: what to call it in a sentence.
        proposed: the adaptation that is proposed for it.
    """

    label: str
    long: str
    proposed: str


#: The families of the experiment, in the order of its tables.
FAMILIES: dict[str, FamilyInTables] = {
    "lpn": FamilyInTables("LPN", "learned proximal network", "pm"),
    "gs": FamilyInTables("GS", "gradient-step denoiser", "adapm"),
}
#: The family under which baselines stand in the tables: they have no denoiser.
BASELINE = "baseline"


def family_label(family: str) -> str:
    """What to call a family in a table; one that is not known is called by its name.

    Example:
        >>> family_label("gs"), family_label("baseline")
        ('GS', 'no learned prior')
    """
    known = FAMILIES.get(family)
    return known.label if known else "no learned prior" if family == BASELINE else family


def title(method: str, family: str) -> str:
    """What to call a row in print.

    Example:
        >>> title("mse", "lpn"), title("auto", "gs"), title("tv", "baseline")
        ('LPN-MSE', 'GS, auto', 'total variation')
    """
    row = METHODS[method]
    if row.role == "baseline":
        return row.label
    between = "-" if row.role in ("model", "adapted") else ", "
    return family_label(family) + between + row.label


def offered() -> dict[str, Method]:
    """The ways to adapt, by what ``adapt`` calls them, ``auto`` first.

    Example:
        >>> list(offered())
        ['auto', 'mse', 'pm', 'adapm', 'l1', 'scaled-mse', 'align']
    """
    found = {method.option: method for method in METHODS.values() if method.option}
    return {"auto": found["auto"], **found}


def chosen(option: str) -> Method:
    """A way to adapt by what ``adapt`` calls it.

    Raises:
        InputError: there is none of that name.

    Example:
        >>> chosen("align").role
        'aligned'
    """
    if option not in offered():
        raise InputError(f"no method {option!r}; there are {', '.join(offered())}")
    return offered()[option]
