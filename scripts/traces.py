#!/usr/bin/env python3
"""traces.py [FOLDER]: writes the made-up days office.csv, flash-crowd.csv and sawtooth.csv (default tests/traces); the same bytes every time."""
import math
import pathlib
import sys

HEADER = "time,logins,mean_stay_seconds,cost_percent"


def between(hour, points):
    """The value at an hour, on straight lines between (hour, value)."""
    for (h0, v0), (h1, v1) in zip(points, points[1:]):
        if h0 <= hour <= h1:
            return v0 + (v1 - v0) * (hour - h0) / (h1 - h0)
    return 0.0


def office(hour):
    """People come at nine, go for lunch, come again and go home; a few work late. Stays of 40 min, longer in the morning."""
    rate = between(hour, [(0, 2), (5, 2), (7, 12), (8.5, 80), (9.5, 105), (10.5, 75), (11.75, 60), (12.25, 28), (13, 30),
                          (13.75, 85), (15, 70), (16.5, 55), (17.5, 25), (19, 10), (22, 4), (24, 2)])
    stay = between(hour, [(0, 1200), (7, 2400), (9, 3000), (12, 1800), (13, 2400), (17, 1800), (19, 1500), (24, 1200)])
    return rate, stay, 0.8


def flash_crowd(hour):
    """A shop with a quiet day and its peak in the evening; at eight a sale opens and brings a third of the day's users within half an hour."""
    day = between(hour, [(0, 3), (2, 1), (6, 1), (9, 4), (12, 6), (14, 5), (18, 8), (21, 9), (23, 5), (24, 3)])
    since = (hour - 20) * 60
    sale = 0.0 if since < 0 else (since / 5 if since < 5 else math.exp(-(since - 5) / 10))
    return day + 250 * sale, 720 if sale < 0.01 else 900, 0.8


def sawtooth(hour):
    """Every three hours: over two hours ever more logins, then none for one; made to tempt growth and compaction."""
    phase = hour % 3
    return (phase if phase < 2 else 0.0), 1500, 0.8


def rows(shape, minutes, users):
    """Rows of so many minutes; logins scaled to the number of users."""
    steps = [(step, *shape((step + minutes / 2) / 60)) for step in range(0, 24 * 60, minutes)]
    scale = users / sum(rate for _, rate, _, _ in steps)
    for step, rate, stay, cost in steps:
        yield f"{step // 60:02}:{step % 60:02},{rate * scale:.2f},{stay:.0f},{cost:g}"


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/traces")
    for name, shape, minutes in (("office", office, 5), ("flash-crowd", flash_crowd, 1), ("sawtooth", sawtooth, 5)):
        lines = [HEADER, *rows(shape, minutes, 10_000)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


main()
