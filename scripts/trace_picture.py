#!/usr/bin/env python3
"""Draws a trace that `trace: FILE` wrote as an SVG: a row for each thread and stream of each rank.

    scripts/trace_picture.py TRACE.json PICTURE.svg [--from MS] [--to MS]"""
import argparse
import html
import json

COLORS = {"forward": "#4c78a8", "backward": "#f58518", "all_gather": "#54a24b", "reduce_scatter": "#b279a2", "all_reduce": "#b279a2",
          "optimizer": "#e45756", "acquire": "#9d9da1", "reduce": "#d8b5d0", "read step": "#eeca3b", "checkpoint": "#72b7b2"}
LEFT, WIDTH, ROW, GAP, TOP = 190, 1000, 18, 4, 34


def color_of(name):
    return next((color for word, color in COLORS.items() if word in name), "#d3d3d8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="begin", type=float, help="milliseconds; default: the first span")
    parser.add_argument("--to", dest="end", type=float, help="milliseconds; default: the last span")
    args = parser.parse_args()
    events = json.load(open(args.trace))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    begin = args.begin if args.begin is not None else min(e["ts"] for e in spans) / 1e3
    end = args.end if args.end is not None else max(e["ts"] + e["dur"] for e in spans) / 1e3
    processes = {e["pid"]: e["args"]["name"].split(" on ")[0] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [e for e in spans if e["ts"] / 1e3 < end and (e["ts"] + e["dur"]) / 1e3 > begin]
    rows = [key for key in sorted(threads) if any((e["pid"], e["tid"]) == key for e in shown)]
    scale = WIDTH / (end - begin)
    height = TOP + len(rows) * (ROW + GAP) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{LEFT + WIDTH + 10}" height="{height}" fill="white"/>']
    for i, key in enumerate(rows):
        y = TOP + i * (ROW + GAP)
        out.append(f'<text x="4" y="{y + 13}">{html.escape(processes[key[0]])}: {html.escape(threads[key])}</text>')
        for e in sorted((e for e in shown if (e["pid"], e["tid"]) == key), key=lambda e: e["ts"]):
            x0, x1 = max(e["ts"] / 1e3, begin), min((e["ts"] + e["dur"]) / 1e3, end)
            out.append(f'<rect x="{LEFT + (x0 - begin) * scale:.1f}" y="{y}" width="{max(0.4, (x1 - x0) * scale):.1f}" height="{ROW}" '
                       f'fill="{color_of(e["name"])}" stroke="white" stroke-width="0.3"><title>{html.escape(e["name"])}</title></rect>')
    for k in range(11):
        t = begin + (end - begin) * k / 10
        out.append(f'<text x="{LEFT + WIDTH * k / 10:.0f}" y="{TOP - 8}" text-anchor="middle" fill="#666">{t - begin:.0f} ms</text>')
    x = LEFT
    for word in [w for w in COLORS if any(w in e["name"] for e in shown)]:
        out += [f'<rect x="{x}" y="{height - 22}" width="12" height="12" fill="{COLORS[word]}"/>', f'<text x="{x + 16}" y="{height - 12}">{word}</text>']
        x += 100
    open(args.picture, "w").write("\n".join(out + ["</svg>"]) + "\n")


main()
