from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import proxmatch
from proxmatch.experiments.cells import Outcome, Store, address, cell
from proxmatch.records import Label

A = Label("lpn", "extreme", "pm", 5, 0)


def test_an_address_is_the_hash_of_the_canonical_text() -> None:
    import hashlib

    text = '{"a":[1,2.5,null],"b":{"c":"d"}}'
    assert (
        address({"b": {"c": "d"}, "a": (1, 2.5, None)})
        == (hashlib.sha256(text.encode()).hexdigest()[:20])
    )


def test_addresses_depend_on_what_decides_the_result_and_on_nothing_else() -> None:
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
    assert len({one.key, *(c.key for c in different)}) == 1 + len(different)


def test_a_cell_of_older_code_is_not_taken_for_one_of_the_present(tmp_path: Path) -> None:
    """``auto`` once changed and its cells were reused; another page of a report changes nothing."""
    copy = tmp_path / "proxmatch"
    shutil.copytree(Path(proxmatch.__file__).parent, copy, ignore=shutil.ignore_patterns("gs-*"))

    def keys() -> dict[str, str]:
        code = (
            "import sys; sys.dont_write_bytecode = True\n"
            "from proxmatch.experiments.cells import cell\n"
            "from proxmatch.records import Label\n"
            "for kind in ('adaptation', 'reconstruction', 'certificate'):\n"
            "    print(kind, cell(kind, {}, Label()).key)\n"
        )
        place = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=place, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return dict(line.split() for line in done.stdout.decode().splitlines())

    def changed(*path: str) -> set[str]:
        before = keys()
        file = copy.joinpath(*path)
        file.write_text(file.read_text() + "\nCHANGED = True\n")
        return {kind for kind, key in keys().items() if key != before[kind]}

    assert changed("learning", "auto.py") == {"adaptation"}
    assert changed("theory", "certificate.py") == {"certificate"}
    assert changed("pnp.py") == {"adaptation", "reconstruction", "certificate"}
    assert changed("report", "page.py") == set()


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
