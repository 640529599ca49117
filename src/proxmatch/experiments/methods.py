"""The rows of the experiment: what is done to the source denoiser, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["model", "adapted", "aligned", "auto", "baseline"]

#: Bound on the gradient of the controls with clipping.
CLIP = 0.02


@dataclass(frozen=True)
class Method:
    """One row.

    Attributes:
        name: in every table.
        title: what to call it in print, with ``{family}`` where that is LPN or GS.
        role: ``model`` as trained, ``adapted`` by training, ``aligned`` without, ``auto`` by the
            library's own choice, ``baseline`` without a learned prior.
        loss: of an adaptation.
        optimizer: changes of its optimizer, all else being the same for every row.
        penalty: whether the contractivity penalty is added.
        best: take the weights of the best held-out reconstructions in place of the last ones. A
            fifth of the images, or a quarter of each, is then not trained on.
        control: what the row is a control for; empty for the rows of the paper and ours.
    """

    name: str
    title: str
    role: Role
    loss: str = ""
    optimizer: dict[str, Any] = field(default_factory=dict)
    penalty: bool = False
    best: bool = False
    control: str = ""

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


def _adapted(name: str, title: str, loss: str, **more: Any) -> Method:
    return Method(name, f"{{family}}-{title}", "adapted", loss, **more)


_ALL = (
    Method("source", "{family}-source", "model"),
    Method("reference", "{family}-reference", "model"),
    _adapted("mse", "MSE", "mse"),
    _adapted("pm", "PM", "pm"),
    _adapted("adapm", "AdaPM", "pm", penalty=True),
    _adapted("l1", "L1", "l1", control="loss"),
    _adapted("scaled-mse", "MSE, PM's gradient scale", "scaled-mse", control="gradient scale"),
    _adapted("mse-clip", "MSE, clipped", "mse", optimizer={"clip": CLIP}, control="clipping"),
    _adapted("pm-clip", "PM, clipped", "pm", optimizer={"clip": CLIP}, control="clipping"),
    _adapted("mse-unclipped", "MSE, unclipped", "mse", optimizer={"clip": None},
             control="clipping"),
    _adapted("mse-penalty", "MSE + penalty", "mse", penalty=True, control="penalty"),
    _adapted("mse-best", "MSE, stopped", "mse", best=True, control="stopping"),
    _adapted("pm-best", "PM, stopped", "pm", best=True, control="stopping"),
    _adapted("adapm-best", "AdaPM, stopped", "pm", penalty=True, best=True, control="stopping"),
    Method("aligned", "{family}, aligned", "aligned"),
    Method("auto", "{family}, auto", "auto"),
    Method("none", "no denoiser", "baseline"),
    Method("wiener", "Wiener filter", "baseline"),
    Method("tv", "total variation", "baseline"),
)  # fmt: skip

METHODS: dict[str, Method] = {method.name: method for method in _ALL}

#: The adaptation that the paper proposes, by family.
PROPOSED = {"lpn": "pm", "gs": "adapm"}
FAMILIES = {"lpn": "LPN", "gs": "GS"}
#: The family under which baselines stand in the tables: they have no denoiser of either.
BASELINE = "baseline"


def title(method: str, family: str) -> str:
    """What to call a row in print."""
    return METHODS[method].title.format(family=FAMILIES.get(family, ""))
