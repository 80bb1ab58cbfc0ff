"""Pieces of PromQL that the rules are put together from.

All of them are safe against what spoils alerts in practice:
- a lost scrape makes every series of its target disappear until the next one, so nothing is read
  but over a window of several scrapes (`fresh`);
- a label that is on one side only makes a match empty, so each match names its labels, and its
  right-hand side is brought to just these (`one`);
- a division by nothing is left out (`share`);
- an increase is not seen where a counter is first seen above 0 (`happened`);
- the file of a process that has ended goes on showing what that held (`living`).
"""
import dataclasses
import textwrap

import values_file

# With rank and job, as the textfiles of several processes reach Prometheus as one instance.
PROCESS = "job, instance, job_id, rank"
POOL = f"{PROCESS}, device, pool"
DEVICE = f"{PROCESS}, device"
JOB = "job, job_id"
LEVEL = "instance_device_pool"
THRESHOLD = f"{LEVEL}:gpupool_alert_threshold:last"
SCRAPES_FRESH = 4  # a value is as old as that at the most
SCRAPES_THRESHOLD = 40
# 1 for each process whose textfile is about the past.
ENDED = "process:gpupool_textfile_end_time:passed"
NEWS = f"{LEVEL}:gpupool_start_time:news"  # in `happened`


def indent(text, spaces=2):
    return textwrap.indent(text, " " * spaces)


def group(text):
    return f"(\n{indent(text)}\n)"


@dataclasses.dataclass(frozen=True)
class Windows:
    """Texts of windows that follow from the scrape interval."""
    fresh: str
    threshold: str
    short: str  # for what moves with the steps of a job


def fresh(metric, windows):
    """The last value, also where the newest scrape was lost; all labels are kept."""
    return f"last_over_time({metric}[{windows.fresh}])"


def one(expression, labels=POOL):
    """One series for each set of `labels`: what a match may have on its right-hand side."""
    return f"max by ({labels}) ({expression})"


def one_fresh(metric, windows, labels=POOL):
    return one(fresh(metric, windows), labels)


def compare(left, operator, right, labels=POOL):
    return f"{left}\n{operator} on ({labels}) group_left ()\n{indent(right)}"


def share(left, right, labels=POOL):
    """left / right where right is above 0. `right` has just `labels`."""
    return f"{left}\n/ on ({labels}) group_left ()\n{indent('(' + right + ' > 0)')}"


def both(left, right, labels=POOL):
    return f"{left}\nand on ({labels})\n{indent(right)}"


def without(left, right, labels=POOL):
    return f"{left}\nunless on ({labels})\n{indent(right)}"


def living(expression):
    """Without what the file of a process that has ended still shows."""
    return without(group(expression), ENDED, PROCESS)


def news(window, windows):
    """Pools all of whose counts are of the last `window`: those that started within it, and those of a
    process that has ended within it and was never seen before."""
    seconds = values_file.seconds(window)
    started = one_fresh("gpupool_start_time_seconds", windows)
    ended = one_fresh("gpupool_textfile_end_time_seconds", windows, PROCESS)
    unseen = without(started, one(f"last_over_time(gpupool_start_time_seconds[{windows.fresh}]"
                                  f" offset {window})"))
    left = both(group(unseen), f"(time() - {ended} < {seconds} >= 0)", PROCESS)
    return f"({started} > time() - {seconds})\nor\n{group(left)}"


def happened(metric, window, windows, labels=POOL):
    """How often it has happened in `window`. increase() does not see a counter that was above 0 when
    it was first seen: of NEWS all of it counts. Of a process that was there long before it was first
    scraped nobody knows when it happened, and nothing is said."""
    new = both(f"(last_over_time({metric}[{windows.fresh}]) > 0)", NEWS, labels)
    if labels == PROCESS:  # a new pool makes no new process
        seconds = values_file.seconds(window)
        new = without(group(new), f"({fresh('gpupool_start_time_seconds', windows)}"
                                  f" <= time() - {seconds})", PROCESS)
    return f"{group(new)}\nor\n{group(f'increase({metric}[{window}]) > 0')}"


def above_threshold(alert, value, own, hysteresis):
    """Where `value` is above what its process exports as threshold of this alert, or, where it
    exports none, above the rule's own. While the alert fires that share of the threshold is enough:
    a value that hovers does not begin anew each time. `value` is one selector."""
    exported = f'{THRESHOLD}{{alert="{alert}"}}'
    fires = both(value, f'ALERTS{{alertname="{alert}", alertstate="firing"}}')
    parts = [compare(value, ">", exported),
             group(without(value, exported)) + f" > {own}",
             compare(group(fires), ">", f"{hysteresis} * {exported}"),
             group(without(fires, exported)) + f" > {round(hysteresis * own, 6)}"]
    return "\nor\n".join(map(group, parts))
