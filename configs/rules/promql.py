"""Pieces of PromQL that the rules are put together from.

All of them are safe against what spoils alerts in practice:
- a lost scrape makes every series of its target disappear until the next one, so nothing is read
  but over a window of several scrapes (`fresh`);
- a label that is on one side only makes a match empty, so each match names its labels, and its
  right-hand side is brought to just these (`one`);
- a division by nothing is left out (`share`).
"""
import dataclasses
import textwrap

POOL = "job, instance, device, pool"
DEVICE = "job, instance, device"
JOB = "job, job_id"
LEVEL = "instance_device_pool"
THRESHOLD = f"{LEVEL}:gpupool_alert_threshold:last"
SCRAPES_FRESH = 4  # a value is as old as that at the most
SCRAPES_THRESHOLD = 40


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
