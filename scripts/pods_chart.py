#!/usr/bin/env python3
"""pods_chart.py FILE GROUP:LEAST:END...: workers over time as a small text chart; fails where a group never had LEAST workers or does not end with END.

FILE has lines `SECONDS GROUP WORKERS`; a `?` is a reading that failed."""
import sys

COLUMNS = 72


def chart(name, points):
    start, end = points[0][0], points[-1][0]
    span = max(end - start, 1)
    columns = [0] * COLUMNS
    for (time, workers), (until, _) in zip(points, points[1:] + [(end + 1, 0)]):
        first, last = ((t - start) * (COLUMNS - 1) // span for t in (time, min(until, end)))
        for column in range(first, last + 1):
            columns[column] = max(columns[column], workers) if column == first else workers
    print(f"{name}: workers from {start} s to {end} s")
    for level in range(max(columns), 0, -1):
        print(f"{level:3} |" + "".join("#" if workers >= level else " " for workers in columns).rstrip())
    print("    +" + "-" * COLUMNS)


def main(path, *wanted):
    with open(path) as file:
        rows = [line.split() for line in file]
    held = True
    for want in wanted:
        name, least, end = want.split(":")
        points = [(int(row[0]), int(row[2])) for row in rows if len(row) == 3 and row[1] == name and row[2] != "?"]
        if not points:
            print(f"{name}: no reading")
            held = False
            continue
        chart(name, points)
        most, last = max(workers for _, workers in points), points[-1][1]
        held = held and most >= int(least) and last == int(end)
        print(f"    most {most} (wanted at least {least}), at the end {last} (wanted {end})\n")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
