"""The pictures of the demo's vouchers, drawn here: flat shapes, a few kilobytes each."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 960, 540

_FINER = 2
"""How much finer a picture is drawn, so that its edges are smooth."""

Box = tuple[float, float, float, float]
Points = Sequence[tuple[float, float]]


class Pen:
    """Shapes on a canvas, in the pixels of the finished picture."""

    def __init__(self, ground: str) -> None:
        self.image = Image.new("RGB", (WIDTH * _FINER, HEIGHT * _FINER), ground)
        self._draw = ImageDraw.Draw(self.image)

    def disc(self, x: float, y: float, radius: float, colour: str) -> None:
        self.oval((x - radius, y - radius, x + radius, y + radius), colour)

    def oval(self, box: Box, colour: str) -> None:
        self._draw.ellipse(_finer(box), fill=colour)

    def bar(self, box: Box, radius: float, colour: str) -> None:
        self._draw.rounded_rectangle(_finer(box), radius=radius * _FINER, fill=colour)

    def shape(self, points: Points, colour: str) -> None:
        self._draw.polygon([(x * _FINER, y * _FINER) for x, y in points], fill=colour)

    def slice(self, box: Box, start: float, end: float, colour: str) -> None:
        self._draw.pieslice(_finer(box), start, end, fill=colour)

    def line(self, points: Points, width: float, colour: str) -> None:
        """Draw a line with round ends and corners."""
        fine = [(x * _FINER, y * _FINER) for x, y in points]
        self._draw.line(fine, fill=colour, width=round(width * _FINER), joint="curve")
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, colour)

    def steam(self, x: float, bottom: float, colour: str) -> None:
        """Draw a wave of steam."""
        wave = [(x + 14 * math.sin(step / 12 * math.tau), bottom - step * 8) for step in range(13)]
        self.line(wave, 11, colour)

    def png(self) -> bytes:
        """Return the finished picture."""
        file = io.BytesIO()
        self.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).save(file, "PNG")
        return file.getvalue()


def draw_tea() -> bytes:
    """Return a pot of tea with two cups."""
    pen = Pen("#dfe7d8")
    pen.disc(720, 130, 250, "#edf2e7")
    pen.bar((0, 430, WIDTH, HEIGHT), 0, "#b98d62")
    pen.bar((0, 430, WIDTH, 442), 0, "#a67a50")
    for x in (380, 440, 500):
        pen.steam(x, 168, "#ffffff")
    pen.line([(592, 300), (668, 262), (716, 216)], 34, "#3f6b57")  # the spout
    pen.oval((208, 236, 336, 392), "#3f6b57")  # the handle
    pen.oval((236, 264, 320, 364), "#dfe7d8")
    pen.oval((270, 200, 620, 440), "#3f6b57")
    pen.oval((350, 190, 540, 232), "#2f5343")
    pen.disc(445, 186, 20, "#c9a45c")
    for x in (640, 790):
        pen.slice((x, 300, x + 120, 460), 0, 180, "#fbf7ee")
        pen.oval((x, 364, x + 120, 396), "#fbf7ee")
        pen.oval((x + 10, 369, x + 110, 391), "#c58a3d")
    return pen.png()


def draw_hotpot() -> bytes:
    """Return a divided pot, red and pale, on a stove."""
    pen = Pen("#f6d9c6")
    pen.disc(760, 120, 230, "#fbe9db")
    for x in (390, 480, 570):
        pen.steam(x, 150, "#ffffff")
    pen.bar((140, 236, 820, 268), 16, "#3d3f45")
    pen.shape([(250, 418), (710, 418), (744, 490), (216, 490)], "#2d2f34")
    pen.slice((196, 20, 764, 450), 0, 180, "#53565e")
    pen.oval((196, 158, 764, 318), "#6d717b")
    box = (222, 174, 738, 302)
    pen.slice(box, 90, 270, "#cf3a25")
    pen.slice(box, 270, 450, "#f7ecd2")
    pen.oval((414, 174, 546, 238), "#cf3a25")  # the curved divide
    pen.oval((414, 238, 546, 302), "#f7ecd2")
    for x, y in ((310, 216), (372, 262), (400, 200), (290, 254)):
        pen.oval((x - 24, y - 8, x + 24, y + 8), "#8f1d12")
    for x, y in ((600, 212), (660, 244)):
        pen.oval((x - 30, y - 9, x + 30, y + 9), "#5c9a4c")
    for x, y in ((560, 258), (332, 240), (618, 270)):
        pen.disc(x, y, 14, "#ffffff")
    pen.line([(860, 96), (560, 226)], 12, "#8a5a34")
    pen.line([(880, 132), (580, 250)], 12, "#8a5a34")
    return pen.png()


def draw_breakfast() -> bytes:
    """Return a steamer with buns and a bowl of soy milk."""
    pen = Pen("#fbe6b8")
    pen.disc(200, 110, 220, "#fdf1d3")
    pen.bar((0, 446, WIDTH, HEIGHT), 0, "#c98f56")
    for x in (300, 400, 500):
        pen.steam(x, 176, "#ffffff")
    pen.bar((176, 300, 624, 452), 22, "#d9a867")
    pen.bar((176, 366, 624, 384), 0, "#b98546")
    pen.oval((176, 252, 624, 352), "#b98546")
    pen.oval((196, 262, 604, 342), "#e8c48c")
    for x, y in ((280, 280), (400, 262), (520, 280), (340, 306), (460, 306)):
        pen.oval((x - 62, y - 42, x + 62, y + 36), "#fffaf0")
        for turn in (-16, 0, 16):
            pen.line([(x + turn / 2, y - 32), (x + turn, y - 12)], 4, "#e4d6bd")
    pen.slice((680, 270, 860, 470), 0, 180, "#ffffff")
    pen.oval((680, 344, 860, 396), "#ffffff")
    pen.oval((694, 352, 846, 388), "#f3e3c3")
    pen.line([(640, 470), (900, 470)], 10, "#a86f38")
    return pen.png()


DRAWINGS: dict[str, Callable[[], bytes]] = {
    "tea": draw_tea,
    "hotpot": draw_hotpot,
    "breakfast": draw_breakfast,
}


def _finer(box: Box) -> Box:
    left, top, right, bottom = (edge * _FINER for edge in box)
    return left, top, right, bottom
