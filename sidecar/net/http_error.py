"""The refusal of a request, for every listener."""

from __future__ import annotations

from collections.abc import Mapping


class HttpError(Exception):
    """Answers the request with ``status`` and ``{"error": sentence}``; ``word`` is the label of the refusals metric."""

    def __init__(self, status: int, word: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.word = word
        self.headers = headers
