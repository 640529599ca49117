from __future__ import annotations

import json

import pytest

from proxmatch.experiments import cells
from proxmatch.experiments.cells import Label, Outcome, Store, address, cell

A = Label("lpn", "extreme", "pm", 5, 0)


def test_an_address_is_the_hash_of_the_canonical_text() -> None:
    import hashlib

    text = '{"a":[1,2.5,null],"b":{"c":"d"}}'
    assert (
        address({"b": {"c": "d"}, "a": (1, 2.5, None)})
        == (hashlib.sha256(text.encode()).hexdigest()[:20])
    )


def test_addresses_depend_on_what_decides_the_result_and_on_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = cell("model", {"seed": 0}, A)
    settings = {"loss": "pm", "optimizer": {"clip": None, "rate": 1e-3}}
    one = cell("adaptation", settings, A, model=model)
    reordered = {"optimizer": {"rate": 0.001, "clip": None}, "loss": "pm"}
    assert cell("adaptation", reordered, Label(), model=model, other=None).key == one.key
    other_model = cell("model", {"seed": 1}, A)
    different = [
        cell("adaptation", {**settings, "loss": "mse"}, A, model=model),
        cell("adaptation", settings, A, model=other_model),
        cell("adaptation", settings, A, reference=model),
        cell("adaptation", settings, A),
        cell("reconstruction", settings, A, model=model),
    ]
    monkeypatch.setitem(cells.VERSIONS, "adaptation", cells.VERSIONS["adaptation"] + 1)
    different.append(cell("adaptation", settings, A, model=model))
    assert len({one.key, *(c.key for c in different)}) == 1 + len(different)


def test_nan_has_no_address() -> None:
    with pytest.raises(ValueError, match="JSON"):
        address({"rate": float("nan")})


def test_a_store_gives_back_what_it_got_and_nothing_unfinished(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = Store(tmp_path / "cells")
    outcome = Outcome({"psnr": [1.5, None]}, {"a.bin": b"\0\1", "b.json": b"{}"})
    assert "k" not in store
    store.write("k", outcome)
    assert "k" in store
    assert Store(tmp_path / "cells").read("k") == outcome
    (tmp_path / "cells" / "k" / ".a.bin.tmp123").write_bytes(b"half")
    assert store.read("k") == outcome
    (tmp_path / "cells" / "half").mkdir()  # files were written, the JSON was not
    assert "half" not in store
    assert json.loads((tmp_path / "cells" / "k.json").read_text()) == outcome.result
