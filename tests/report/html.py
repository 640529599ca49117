"""A page taken apart: what a browser would see in it."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "img", "input", "br", "hr"}
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "aria-controls")
ADDRESSES = ("src", "href", "action", "srcset", "data", "poster", "xlink:href", "formaction")


class Page(HTMLParser):
    """Elements, ids, references, addresses and texts; checks that every element is closed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.references: set[str] = set()
        self.addresses: set[str] = set()
        self.images: list[dict[str, str]] = []
        self.metas: list[dict[str, str]] = []
        self.scripts: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"an attribute twice in {tag}"
        self.tags[tag] += 1
        self.attributes.update(given.keys())
        if "id" in given:
            self.ids[given["id"]] += 1
        for name in REFERENCES:
            self.references.update(given.get(name, "").split())
        for name in ADDRESSES:
            if name in given:
                self.addresses.add(given[name])
        if given.get("href", "").startswith("#"):
            self.references.add(given["href"][1:])
        if tag == "img":
            self.images.append(given)
        if tag == "meta":
            self.metas.append(given)
        if tag == "script":
            self.scripts.append((given.get("type", ""), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + text)
        elif self.open and self.open[-1] != "style":
            self.texts.append(text)

    @property
    def text(self) -> str:
        """What is to be read, with single spaces."""
        return " ".join(" ".join(self.texts).split())

    @property
    def numbers(self) -> Any:
        """The JSON that the script draws."""
        (found,) = [text for kind, text in self.scripts if kind == "application/json"]
        return json.loads(found)
