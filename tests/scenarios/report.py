"""Whether the alerts of a run were good, and the tables that say so."""
import dataclasses

from expectations import (ANNOUNCED_BY, MAY_FIRE_ONCE, MINUTES_AHEAD, SECONDS_AFTER_CAUSE,
                          SHORTFALLS)

TOLD = ("critical", "warning")  # info reaches nobody by itself


def short(alert):
    return alert.removeprefix("Gpupool")


@dataclasses.dataclass
class Outcome:
    """One run, judged."""
    scenario: str
    seed: int
    ending: str
    length: float  # seconds until the failing request, or the end
    announced_by: str = ""
    ahead: float = None  # seconds before the failing request
    after: float = None  # seconds after the cause, where that is sudden
    others: str = ""
    fault: str = ""
    reason: str = ""
    once: str = ""  # what a benign run may fire once, and did
    shortfall: str = ""  # why the target is not met, where that is known

    def verdict(self):
        return "BAD" if self.fault else "short" if self.shortfall else "ok"

    def fault_text(self):
        return f"{self.scenario}, seed {self.seed}: {self.fault}"

    def lead(self):
        if self.ahead is None:
            return "missed" if self.ending != "benign" else ""
        return clock(self.ahead) if self.after is None else f"{self.after:.0f} s after"


def clock(seconds):
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def judge(scenario, recording, fired):
    length = recording["ends"] if recording["failure"] is None else recording["failure"]
    outcome = Outcome(scenario["name"], recording["seed"], scenario["ending"], length,
                      reason=recording["reason"])
    if scenario["ending"] == "benign":
        _judge_benign(outcome, recording, fired)
    else:
        _judge_failing(outcome, recording, fired)
    return outcome


def excuse(outcome):
    """A shortfall that is known is no fault; one that is none any more is."""
    known = SHORTFALLS.get((outcome.scenario, outcome.seed))
    if known and outcome.fault:
        outcome.shortfall, outcome.fault = f"{outcome.fault}: {known}", ""
    elif known:
        outcome.fault = "the shortfall that expectations.py knows is none any more"
    return outcome


def _judge_benign(outcome, recording, fired):
    if recording["failure"] is not None:
        outcome.fault = f"a request failed: {recording['reason']}"
        return
    once = MAY_FIRE_ONCE.get(outcome.scenario)
    alarms = [firing for firing in fired
              if firing.severity in TOLD and not (firing.alert == once and firing.begun == 1)]
    outcome.others = _told(fired)
    outcome.once = once if any(firing.alert == once for firing in fired) else ""
    if alarms:
        outcome.fault = "false alarm: " + _told(alarms)


def _judge_failing(outcome, recording, fired):
    right = ANNOUNCED_BY[outcome.scenario]
    outcome.others = _told([firing for firing in fired if firing.alert not in right])
    if recording["failure"] is None:
        outcome.fault = "no request failed"
        return
    sudden = recording["cause"] is not None
    told = [(firing.after_cause if sudden else firing.first, firing.alert) for firing in fired
            if firing.alert in right and firing.severity in TOLD]
    told = [moment for moment in told if moment[0] < recording["failure"]]
    if not told:
        outcome.fault = "missed" + (f"; {outcome.others} fired" if outcome.others else "")
        return
    moment, outcome.announced_by = min(told)
    outcome.ahead = recording["failure"] - moment
    if sudden:
        outcome.after = moment - recording["cause"]
        early = [firing for firing in fired if firing.first < recording["cause"]
                 and firing.severity in TOLD]
        if early:
            outcome.fault = "before the cause: " + _told(early)
        elif outcome.after > SECONDS_AFTER_CAUSE:
            outcome.fault = f"told {outcome.after:.0f} s after its cause"
    elif outcome.ahead < 60 * MINUTES_AHEAD:
        outcome.fault = f"told {clock(outcome.ahead)} ahead"


def _told(fired):
    return ", ".join(f"{short(firing.alert)} at {clock(firing.first)}"
                     + (f" ({firing.begun} times)" if firing.begun > 1 else "")
                     + ("" if firing.severity in TOLD else f" ({firing.severity})")
                     for firing in fired)


def judge_all(scenarios, recordings, fired):
    return [judge(scenarios[recording["scenario"]], recording, alerts)
            for recording, alerts in zip(recordings, fired)]


def table(outcomes):
    rows = [("scenario", "seed", "ending", "after", "told", "by", "", "other alerts")]
    for outcome in outcomes:
        rows.append((outcome.scenario, str(outcome.seed), outcome.ending, clock(outcome.length),
                     outcome.lead(), short(outcome.announced_by), outcome.verdict(),
                     outcome.others))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


MARKS = ("<!-- scenarios -->\n", "<!-- end of scenarios -->\n")


def _documented(scenarios, outcomes):
    seeds = sorted({outcome.seed for outcome in outcomes})
    yield "| scenario | what happens | " + " | ".join(f"seed {seed}" for seed in seeds) + " |"
    yield "|---|---|" + "---|" * len(seeds)
    for name, scenario in scenarios.items():
        cells = []
        for outcome in (one for one in outcomes if one.scenario == name):
            cell = outcome.lead() or ("false alarm" if outcome.fault else
                                      f"once, as it may ({short(outcome.once)})" if outcome.once
                                      else "quiet")
            if outcome.announced_by:
                cell += f" ({short(outcome.announced_by)})"
            if outcome.fault or outcome.shortfall:
                cell = f"**{cell}**"
            cells.append(cell)
        yield f"| {name} | {scenario['ending']}: {scenario['story']} | " + " | ".join(cells) + " |"


def write_docs(source, scenarios, outcomes):
    page = source / "docs/ALERTS.md"
    text = page.read_text()
    before, after = text.partition(MARKS[0])[0], text.partition(MARKS[1])[2]
    table_text = "\n".join(_documented(scenarios, outcomes))
    short_ones = "".join(f"- {one.scenario}, seed {one.seed}: {one.fault or one.shortfall}\n"
                         for one in outcomes if one.fault or one.shortfall)
    page.write_text(f"{before}{MARKS[0]}{table_text}\n\nNot met:\n\n{short_ones or '- none'}"
                    f"{MARKS[1]}{after}")
