"""Whether two pictures show the same, told by the browser, which can read them anyhow.

Compared are the mean colours of tiles: other builds of the browser smooth letters differently, which moves the mean of
a tile little; an element that is elsewhere, or of another colour, moves it a lot. Measured with Chromium 156 and the
pictures of docs/page: letters that are bolder by a tenth of a pixel move no tile by ``_LEAST``; the links of the bar
one pixel to the right move 1 of the 12,800 of a pod's picture, and one pod less 53 of a map's. Another font, or letters
that stand a fifth of a pixel further apart, move 1 to 7 % of a picture's tiles; the colours of the dark all but a few.
Other builds were not measured.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec
from typing_extensions import override

from tools.browser.chromium import Tab

_TILE_PX: Final = 8
#: By so much, of 255, the mean of a tile differs in one channel at least, where the tile counts as different.
_LEAST: Final = 12

_COMPARE: Final = """
(async (one, other, tile, least) => {
  const read = async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const mean = (image, left, top, channel) => {
    let [sum, count] = [0, 0];
    for (let y = top; y < Math.min(top + tile, image.height); y += 1) {
      for (let x = left; x < Math.min(left + tile, image.width); x += 1, count += 1) {
        sum += image.data[(y * image.width + x) * 4 + channel];
      }
    }
    return sum / count;
  };
  const [a, b] = [await read(one), await read(other)];
  const told = { sizes: [[a.width, a.height], [b.width, b.height]], tiles: [] };
  if (a.width !== b.width || a.height !== b.height) return told;
  for (let y = 0; y < a.height; y += tile) {
    for (let x = 0; x < a.width; x += tile) {
      if ([0, 1, 2].some((c) => Math.abs(mean(a, x, y, c) - mean(b, x, y, c)) >= least)) told.tiles.push([x, y]);
    }
  }
  return told;
})
"""


class Difference(msgspec.Struct, frozen=True):
    """``sizes``: width and height of both, in pixels. Of the same size: ``tiles`` that differ, by left and top."""

    sizes: tuple[tuple[int, int], tuple[int, int]]
    tiles: tuple[tuple[int, int], ...]

    @property
    def percent(self) -> float:
        """How many tiles differ; all of them where the sizes do."""
        (width, height), other = self.sizes
        every = -(-width // _TILE_PX) * -(-height // _TILE_PX)
        return 100.0 if (width, height) != other else 100 * len(self.tiles) / every

    @override
    def __str__(self) -> str:
        """In words; "": there is none."""
        (width, height), (other_width, other_height) = self.sizes
        if self.sizes[0] != self.sizes[1]:
            return f"{width}x{height} and {other_width}x{other_height} pixels"
        if not self.tiles:
            return ""
        lefts, tops = zip(*self.tiles, strict=True)
        return (
            f"{len(self.tiles)} tiles of {_TILE_PX}x{_TILE_PX} pixels differ, within x {min(lefts)} to "
            f"{max(lefts) + _TILE_PX} and y {min(tops)} to {max(tops) + _TILE_PX}"
        )


async def difference(tab: Tab, one: bytes, other: bytes) -> Difference:
    """Compare two PNGs in a tab that shows nothing else. Raises Failed for what is none."""
    first, second = (base64.b64encode(png).decode() for png in (one, other))
    told = await tab.evaluate(f'{_COMPARE}("{first}", "{second}", {_TILE_PX}, {_LEAST})')
    return msgspec.convert(told, Difference)
