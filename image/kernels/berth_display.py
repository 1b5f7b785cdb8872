"""What figures and data frames show beside their pictures: the numbers in them.

An extension of IPython. It adds two media types to what is displayed: of a figure of
matplotlib the charts that it holds, of a data frame of pandas its columns. Pictures of
Pillow are shown where the code runs, since there is no screen. Nothing is imported until
the code that runs has imported it.
"""

import datetime
import importlib.util
import math
import os
import re
import sys

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName

CHART = "application/vnd.berth.chart+json"
DATA = "application/vnd.berth.data+json"

MOST_CELLS = 100_000  # of a frame; a larger one has no data
MOST_POINTS = 100_000  # of a figure; a larger one has no chart


class _Formatter(BaseFormatter):
    """Shows the values of one class. IPython's table of types is not used: matplotlib's
    own extension takes figures out of every formatter.
    """

    print_method = ObjectName("_repr_berth_")
    _return_type = dict

    def __init__(self, kind, module, name, show, **rest):
        super().__init__(**rest)
        self.format_type, self._of, self._show = kind, (module, name), show

    def __call__(self, value):
        cls = getattr(sys.modules.get(self._of[0]), self._of[1], None)
        if not self.enabled or cls is None or not isinstance(value, cls):
            return None
        try:
            return self._show(value)
        except Exception:  # what cannot be read is shown as a picture: no error of the code
            return None


def load_ipython_extension(shell):
    display = shell.display_formatter
    display.formatters[CHART] = _Formatter(CHART, "matplotlib.figure", "Figure", figure, parent=display)
    display.formatters[DATA] = _Formatter(DATA, "pandas", "DataFrame", frame, parent=display)
    if "PIL.Image" in sys.modules:
        _show_here(sys.modules["PIL.Image"])
    else:
        sys.meta_path.insert(0, _Pillow())


class _Pillow:
    """Finds Pillow's module of images, once, to change how it shows them."""

    def find_spec(self, name, path=None, target=None):
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _show_here(module)

            spec.loader.exec_module = exec_module
        return spec


def _show_here(pillow):
    """Has show() show a picture as the run's result; and save() too, if the variable
    BERTH_SHOW_SAVED is set, unless it is matplotlib that saves one.
    """
    from IPython.display import display

    save = pillow.Image.save

    def show_one(self, title=None):
        display(self)

    def save_one(self, fp, format=None, **params):
        save(self, fp, format, **params)
        by = sys._getframe(1).f_globals.get("__name__", "")
        if os.environ.get("BERTH_SHOW_SAVED") and isinstance(fp, (str, os.PathLike)) and not by.startswith("matplotlib"):
            display(self)

    show_one.__doc__, save_one.__doc__ = pillow.Image.show.__doc__, save.__doc__
    pillow.Image.show, pillow.Image.save = show_one, save_one


def frame(df):
    """The values of each column, by its name."""
    if df.shape[0] * df.shape[1] > MOST_CELLS:
        return None
    return {str(name): [plain(v) for v in df.iloc[:, i].tolist()] for i, name in enumerate(df.columns)}


def plain(v):
    """A value as JSON has it: dates as ISO 8601, what is not a number as null."""
    if v is None or isinstance(v, (bool, str, int)):
        return v
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    if hasattr(v, "item") and getattr(v, "shape", None) == ():
        return plain(v.item())
    if isinstance(v, (datetime.date, datetime.datetime, datetime.time)):
        return None if str(v) == "NaT" else v.isoformat()
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return None if str(v) in ("<NA>", "NaT") else str(v)


def figure(fig):
    """The chart of a figure, or one of several."""
    charts = [c for c in (axes_chart(ax) for ax in fig.axes if ax.get_visible()) if c]
    if not charts or sum(_size(c) for c in charts) > MOST_POINTS:
        return None
    if len(charts) == 1:
        if not charts[0]["title"] and fig.get_suptitle():
            charts[0]["title"] = fig.get_suptitle()
        return charts[0]
    return {"type": "superchart", "title": fig.get_suptitle() or None, "elements": charts}


def _size(chart):
    return sum(len(e.get("points", ())) + len(e.get("outliers", ())) + 1 for e in chart["elements"])


def axes_chart(ax):
    """The chart that one pair of axes holds."""
    if getattr(ax, "name", "") not in ("rectilinear", "polar") or ax.get_label() == "<colorbar>":
        return None
    for kind, read in (("pie", _pie), ("box_and_whisker", _boxes), ("bar", _bars), ("line", _lines), ("scatter", _scatters)):
        elements = read(ax)
        if elements:
            break
    else:
        if ax.has_data():
            return {"type": "unknown", "title": ax.get_title() or None, "elements": []}
        if not (_is_date(ax.xaxis) or _is_date(ax.yaxis)):  # nothing was meant to be drawn, or has failed
            return None
        kind, elements = "line", []
    chart = {"type": kind, "title": ax.get_title() or None, "elements": elements}
    if kind == "pie":
        return chart
    across = any([e.pop("_across", False) for e in elements])  # x is what has the labels, however it is drawn
    for side in ("x", "y"):
        drawn = ("y" if side == "x" else "x") if across else side
        chart[side + "_label"], chart[side + "_unit"] = _label(getattr(ax, f"get_{drawn}label")())
    if kind in ("line", "scatter"):
        for side in ("x", "y"):
            _axis(chart, side, getattr(ax, side + "axis"), getattr(ax, f"get_{side}lim")())
    return chart


_unit = re.compile(r"\s\(([^()]+)\)|\[([^\[\]]+)\]")


def _label(text):
    """The label of an axis, and the unit that stands in it in brackets."""
    unit = _unit.search(text or "")
    return text or None, unit and (unit[1] or unit[2])


def _is_date(axis):
    return type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__ in (
        "DateConverter", "_SwitchableDateConverter", "ConciseDateConverter", "DatetimeConverter", "PeriodConverter")


def _is_category(axis):
    return type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__ == "StrCategoryConverter"


def _axis(chart, side, axis, limits):
    """Ticks, their labels and the scale of an axis."""
    low, high = sorted(limits)
    ticks = [t for t in map(float, axis.get_majorticklocs()) if low <= t <= high]
    labels = axis.get_major_formatter().format_ticks(ticks)
    scale = "datetime" if _is_date(axis) else "categorical" if _is_category(axis) else axis.get_scale()
    chart[side + "_ticks"] = ticks if scale == "categorical" else _values(axis, ticks)
    chart[side + "_tick_labels"] = [str(t) for t in labels]
    chart[side + "_scale"] = scale


def _values(axis, numbers, given=()):
    """Positions along an axis as the values that were drawn there."""
    if _is_date(axis):
        from matplotlib.dates import num2date

        if len(given) == len(numbers) and all(hasattr(v, "isoformat") for v in given):
            return [v.isoformat() for v in given]
        return [num2date(float(n)).replace(tzinfo=None).isoformat() for n in numbers]
    if _is_category(axis):
        names = {position: name for name, position in getattr(axis.units, "_mapping", {}).items()}
        return [names.get(round(float(n)), plain(float(n))) for n in numbers]
    return [plain(float(n)) if math.isfinite(n) else None for n in numbers]


def _name(artist, number, of):
    label = str(artist.get_label() or "")
    return f"{of} {number}" if not label or label.startswith("_") else label


def _lines(ax):
    elements = []
    for line in ax.get_lines():
        xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        if len(xs) == 0 or not line.get_visible() or line.get_transform() != ax.transData:  # such as axhline
            continue
        given = line.get_xdata(orig=True), line.get_ydata(orig=True)
        points = [list(p) for p in zip(_values(ax.xaxis, xs, given[0]), _values(ax.yaxis, ys, given[1]))]
        elements.append({"label": _name(line, len(elements), "Line"), "points": points})
    return elements


def _scatters(ax):
    from matplotlib.collections import PathCollection

    elements = []
    for c in ax.collections:
        if not isinstance(c, PathCollection) or not c.get_visible() or len(c.get_offsets()) == 0:
            continue
        places = c.get_offsets()
        points = [list(p) for p in zip(_values(ax.xaxis, places[:, 0]), _values(ax.yaxis, places[:, 1]))]
        elements.append({"label": _name(c, len(elements), "Scatter"), "points": points})
    return elements


def _bars(ax):
    """Bars, of each container one group."""
    from matplotlib.container import BarContainer

    elements = []
    for n, container in enumerate(c for c in ax.containers if isinstance(c, BarContainer)):
        group = _name(container, n, "Group")
        across = container.orientation == "horizontal"
        axis = ax.yaxis if across else ax.xaxis
        names = _tick_names(axis)
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if across else bar.get_height()
            elements.append({"label": _bar_label(axis, middle, names), "group": group, "value": plain(float(value)), "_across": across})
    return elements


def _tick_names(axis):
    return dict(zip(map(float, axis.get_majorticklocs()), (t.get_text() for t in axis.get_majorticklabels())))


def _bar_label(axis, middle, names):
    """The name of the tick that a bar stands at, else its place."""
    if _is_category(axis):
        return str(_values(axis, [middle])[0])
    nearest = min(names, key=lambda at: abs(at - middle), default=None)
    if nearest is not None and names[nearest] and abs(nearest - middle) < 0.5:
        return names[nearest]
    value = _values(axis, [middle])[0]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pie(ax):
    from matplotlib.patches import Wedge

    return [
        {"label": str(w.get_label() or ""), "angle": round(abs(float(w.theta2) - float(w.theta1)), 4), "radius": plain(float(w.r))}
        for w in ax.patches
        if isinstance(w, Wedge)
    ]


def _boxes(ax):
    """Boxes, as boxplot draws them: a path or a closed line of a box, a median in it."""
    boxes = [p for p in ax.patches if type(p).__name__ == "PathPatch"]
    outlines = [b.get_path().vertices for b in boxes]
    lines = [line for line in ax.get_lines() if len(line.get_xdata())]
    if not boxes:
        closed = [line for line in lines if len(line.get_xdata()) == 5 and line.get_xdata()[0] == line.get_xdata()[-1] and line.get_ydata()[0] == line.get_ydata()[-1]]
        outlines = [list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()))) for line in closed]
        lines = [line for line in lines if line not in closed]
    elements = []
    for outline in outlines:
        box = _box(outline, lines)
        if box is None:
            return []
        elements.append(box)
    _label_boxes(ax, elements)
    return elements


def _box(outline, lines):
    """One box, of its outline and the lines that are at its place."""
    xs, ys = [float(p[0]) for p in outline], [float(p[1]) for p in outline]
    for place, span, along in ((xs, ys, 1), (ys, xs, 0)):
        low, high, middle = min(span), max(span), (min(place) + max(place)) / 2
        at = []
        for line in lines:
            p = [float(v) for v in (line.get_xdata(), line.get_ydata())[1 - along]]
            v = [float(v) for v in (line.get_xdata(), line.get_ydata())[along]]
            if all(min(place) - 1e-9 <= x <= max(place) + 1e-9 for x in p):
                at.append((p, v))
        flat = [v[0] for p, v in at if len(v) == 2 and v[0] == v[1] and p[0] != p[1]]
        medians = [v for v in flat if low <= v <= high]
        upright = [v for p, v in at if len(v) == 2 and p[0] == p[1] and v[0] != v[1]]
        if not medians:
            continue
        ends = [x for v in upright for x in v] + [low, high]
        outliers = [x for p, v in at if len(set(p)) == 1 for x in v if x < min(ends) or x > max(ends)]
        return {"label": "", "min": min(ends), "first_quartile": low, "median": medians[-1], "third_quartile": high,
                "max": max(ends), "outliers": outliers, "_at": middle, "_across": along == 0}
    return None


def _label_boxes(ax, elements):
    for n, e in enumerate(elements):
        axis = ax.yaxis if e["_across"] else ax.xaxis
        names = _tick_names(axis)
        e["label"] = _bar_label(axis, e.pop("_at"), names) or str(n + 1)
