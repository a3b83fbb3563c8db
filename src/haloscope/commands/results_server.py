"""The server of the page of a finished run: its pictures, and no other file."""

from __future__ import annotations

from collections.abc import Mapping

from haloscope.run.results_page import Picture
from haloscope.scope.explorer import LoopbackServer, QuestionError


class ResultsServer(LoopbackServer):
    """Serves a page and the pictures on it, by their addresses."""

    def __init__(self, page: str, pictures: Mapping[str, Picture], port: int = 0) -> None:
        self.pictures = dict(pictures)
        super().__init__(page, port)

    def answer(self, question: str, query: str) -> tuple[bytes, str]:
        """A picture that the page lists."""
        picture = self.pictures.get(question)
        if picture is None:
            raise QuestionError("no such picture")
        return picture.read(), picture.media_type
