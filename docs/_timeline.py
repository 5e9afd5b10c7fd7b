"""Draws docs/explanation/timeline.svg from a real plan: five clients, M_c = 3, M = 2. Run it to write the file again.

It is a file of its own, so that it is seen on GitHub as well as on the site, where it stands on a white ground.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fadas

FILE = Path(__file__).parent / "explanation" / "timeline.svg"
END, UNIT, LEFT, TOP, ROW = 10.0, 66, 92, 46, 36  # virtual time; pixels
CLIENTS = 5
SLOW = 4  # a client, and its first job is the one that is explained
LOOK = 5.5  # where the running jobs are counted
STYLE = """
.timeline { font: 13px system-ui, sans-serif; fill: #222; }
.timeline .job { fill: #0a4bff; opacity: .72; }
.timeline .slow { fill: #c2410c; opacity: .9; }
.timeline .light { fill: #fff; }
.timeline .muted { fill: #555; }
.timeline .step { stroke: #777; stroke-dasharray: 2 4; }
.timeline .look { fill: #777; opacity: .22; }
.timeline .version { fill: #eee; stroke: #777; }
.timeline .update { fill: #0a4bff; }
.timeline .late { fill: #c2410c; }
""".strip()


@dataclass(frozen=True)
class ByClient:
    """A delay model: each client has a range of its own."""

    ranges: tuple[tuple[float, float], ...]

    def bind(self, clients, rng):
        """Return the function (client, u) -> duration."""
        return lambda client, u: self.ranges[client][0] + (self.ranges[client][1] - self.ranges[client][0]) * u


def make_plan() -> fadas.Plan:
    """Return the plan that is drawn."""
    delays = ByClient(((1.0, 1.6), (1.2, 2.0), (1.4, 2.4), (1.8, 3.0), (7.0, 8.0)))
    return fadas.plan(fadas.Schedule(concurrency=3, buffer=2), clients=CLIENTS, delays=delays, time=13, seed=6)


def draw() -> str:
    """Return the picture as SVG."""
    plan, server = make_plan(), TOP + CLIENTS * ROW + 16
    title = "Five clients train jobs along a time axis. The server makes a version from every two updates."
    lines = [
        f'<svg class="timeline" viewBox="0 0 {x(END) + 14} {server + 106}" role="img" aria-label="{title}" '
        'xmlns="http://www.w3.org/2000/svg">',
        f"<style>{STYLE}</style>",
        f'<rect class="look" x="{x(LOOK) - 7}" y="{TOP - 8}" width="14" height="{CLIENTS * ROW + 4}"/>',
        text(x(LOOK), TOP - 28, "M_c = 3", "middle", bold=True),
        text(x(LOOK), TOP - 13, "at any time three clients train", "middle", "muted"),
    ]
    lines += [text(8, TOP + client * ROW + 19, f"client {client}") for client in range(CLIENTS)]
    lines += draw_jobs(plan)
    lines += draw_server(plan, server)
    return "\n".join([*lines, "</svg>", ""])


def draw_jobs(plan: fadas.Plan) -> Iterator[str]:
    """Yield a bar for each job, with the version that it starts from."""
    for job in range(len(plan.client)):
        client, start, end = int(plan.client[job]), float(plan.start[job]), float(plan.end[job])
        if start >= END:
            continue
        y, first = TOP + client * ROW, client == SLOW and plan.version[job] == 0
        width = x(min(end, END)) - x(start) - 2
        kind = "slow" if first else "job"
        yield f'<rect class="{kind}" x="{x(start) + 1}" y="{y + 2}" width="{width:.1f}" height="26" rx="4"/>'
        version = f"v{plan.version[job]}"
        tau = int(plan.tau.ravel()[list(plan.taken).index(job)]) if first else 0
        label = f"tau = {tau}: starts from v0, arrives when the server is at v{tau}" if first else version
        if width > 26:
            yield text(x(start) + 8, y + 20, label, kind="light")


def draw_server(plan: fadas.Plan, y: int) -> Iterator[str]:
    """Yield the server's versions, and the updates that arrive in each."""
    steps = [float(time) for time in plan.time if time < END]
    yield text(8, y + 19, "server", bold=True)
    for version, (start, end) in enumerate(zip([0.0, *steps], [*steps, END], strict=True)):
        yield f'<rect class="version" x="{x(start)}" y="{y}" width="{x(end) - x(start):.1f}" height="30"/>'
        yield text((x(start) + x(end)) / 2, y + 20, f"v{version}", "middle")
    for time in steps:
        yield f'<line class="step" x1="{x(time)}" y1="{TOP - 4}" x2="{x(time)}" y2="{y}"/>'
    for place, job in enumerate(plan.taken):
        if (end := float(plan.end[job])) < END:
            kind = "late" if int(plan.client[job]) == SLOW else "update"
            left = x(end) - (6 if place % plan.schedule.buffer else 0)  # an update that closes a step: left of the line
            yield f'<circle class="{kind}" cx="{left:.1f}" cy="{y + 42}" r="4.5"/>'
    yield text(8, y + 46, "updates")
    middle = (x(steps[0]) + x(steps[1])) / 2
    yield text(middle, y + 66, "M = 2", "middle", bold=True)
    yield text(middle, y + 82, "two updates make a step", "middle", "muted")
    yield text(x(END), y + 100, "virtual time →", "end", "muted")


def x(time: float) -> float:
    """Return the place of a virtual time."""
    return round(LEFT + time * UNIT, 1)


def text(left: float, y: float, words: str, anchor: str = "start", kind: str = "", bold: bool = False) -> str:
    """Return a line of text."""
    marks = (f' class="{kind}"' if kind else "") + (' font-weight="600"' if bold else "")
    return f'<text x="{left:.1f}" y="{y}" text-anchor="{anchor}"{marks}>{words}</text>'


if __name__ == "__main__":
    FILE.write_text(draw(), encoding="utf-8")
