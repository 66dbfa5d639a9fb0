"""What a soak found: what was seen on the way, and whether it is as promised."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
DAY_HOURS = 24
FALLS = frozenset({"drop", "slow_fall"})
PATIENCE_HOURS = 1.6
"""An alert closes this long after the first complete run without its cause, at the latest."""
PER_HOUR = 10
"""Messages for one recipient, as promised."""
_WARNS = 2
"""WARNs without a cause that a month may have: the promise is one in a quarter on average."""
_NUMBERS_BYTES = 2_000
"""Most that the results file grows for an answer whose text is removed."""


class Spell(NamedTuple):
    """Some hours in which something is wrong."""

    what: str
    first: int
    hours: int

    @property
    def end(self) -> int:
        """The first hour after it."""
        return self.first + self.hours

    def covers(self, hour: float) -> bool:
        """Whether it is on."""
        return self.first <= hour < self.end


class Fire(NamedTuple):
    """A row of schedule_fire."""

    due_at: str
    last_due_at: str
    fires: int
    state: str
    run_id: str | None
    ended_at: str | None
    reason: str


class Told(NamedTuple):
    """A row of notification."""

    state: str
    occasion: str
    digest: str | None


class Alert(NamedTuple):
    """A row of alert; times in hours of the soak."""

    condition: str
    level: str
    opened: float
    closed: float | None


class RunRow(NamedTuple):
    """A run, and how many cells it has."""

    id: str
    status: str
    created: float
    cells: int


@dataclass
class Seen:
    """What was seen while the hours passed, because retention removes some of it."""

    hours: int
    cases: int
    spells: list[Spell]
    retention_days: int
    fires: dict[str, Fire] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """Times that were over and became something else."""
    told: dict[str, Told] = field(default_factory=dict)
    days: list[int] = field(default_factory=list)
    """Days at the end of which the disk was measured."""
    megabytes: list[float] = field(default_factory=list)
    """Of the results file at the end of each day."""
    texts: list[float] = field(default_factory=list)
    """Of the texts in it."""
    folder: list[float] = field(default_factory=list)
    """Of everything that is kept, backups included."""
    kills: Counter[str] = field(default_factory=Counter)
    outages: int = 0
    alerts: list[Alert] = field(default_factory=list)
    runs: list[RunRow] = field(default_factory=list)
    backups: int = 0
    hook: list[dict[str, object]] = field(default_factory=list)
    """Requests that the webhook got."""
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    """Hour, process and resident kilobytes of schedulers."""
    seconds: float = 0.0

    def spell(self, what: str) -> Spell:
        """Return what was planted under a name."""
        return next(spell for spell in self.spells if spell.what == what)


def hour_of(time: str) -> float:
    """Return a stored time as hours since the start."""
    return (dt.datetime.fromisoformat(time) - START) / HOUR


@dataclass
class Account:
    """The figures of a soak, and what is not as promised."""

    seen: Seen
    figures: dict[str, object] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fires()
        self._runs()
        self._alerts()
        self._notifications()
        self._memory()
        self._disk()

    def expect(self, good: bool, said: str) -> None:
        """Note what is not as promised."""
        if not good:
            self.wrong.append(said)

    # --- times ------------------------------------------------------------------------------------

    def _fires(self) -> None:
        seen, count = self.seen, Counter[int]()
        states: Counter[str] = Counter()
        for fire in seen.fires.values():
            first, last = round(hour_of(fire.due_at)), round(hour_of(fire.last_due_at))
            count.update(range(first, last + 1))
            states[fire.state] += fire.fires
            self.expect(fire.fires == last - first + 1, f"{fire} stands for another number")
        lost = [hour for hour in range(seen.hours) if not count[hour]]
        doubled = [hour for hour in range(seen.hours) if count[hour] > 1]
        ended = {"done", "failed", "missed", "skipped"}
        self.figures |= {state: states[state] for state in sorted(ended)}
        self.figures |= {"lost": len(lost), "doubled": len(doubled), "changed": len(seen.changed)}
        self.figures |= {"kills_scheduler": seen.kills["scheduler"], "kills_run": seen.kills["run"]}
        self.figures |= {"outages": seen.outages, "seconds": round(seen.seconds)}
        self.expect(not lost, f"hours without a row: {lost}")
        self.expect(not doubled, f"hours with two rows: {doubled}")
        self.expect(not seen.changed, f"times that changed after their end: {seen.changed}")
        self.expect(states.keys() <= ended, f"times that are not over: {states}")
        for state, what in (("failed", "model "), ("skipped", "budget")):
            for fire in seen.fires.values():
                planted = [s for s in seen.spells if s.what.startswith(what)]
                cause = any(s.covers(round(hour_of(fire.due_at))) for s in planted)
                self.expect(fire.state != state or cause, f"{state} without a cause: {fire}")

    def _runs(self) -> None:
        seen = self.seen
        of_fires = [fire.run_id for fire in seen.fires.values() if fire.run_id is not None]
        stored = {row.id: row for row in seen.runs}
        self.figures |= {"runs": len(stored)}
        self.expect(len(of_fires) == len(set(of_fires)), "two times have the same run")
        self.expect(set(of_fires) == stored.keys(), "a run without a time, or a time without a run")
        done = {fire.run_id for fire in seen.fires.values() if fire.state == "done"}
        bad = [
            row
            for row in seen.runs
            if (row.id in done) != (row.status == "COMPLETED")
            or (row.status == "COMPLETED" and row.cells != seen.cases)
        ]
        self.figures["incomplete"] = len(bad)
        self.expect(not bad, f"runs that are not as their times say: {bad}")

    # --- alerts -----------------------------------------------------------------------------------

    def _groups(self, state: str) -> list[tuple[float, float]]:
        """Return when times of a state ended, those without a complete run between together."""
        groups: list[list[float]] = []
        fresh = True
        for fire in sorted(self.seen.fires.values(), key=lambda fire: fire.ended_at or ""):
            if fire.state == "done":
                fresh = True
            elif fire.state == state:
                groups = [*groups, []] if fresh else groups
                fresh = False
                groups[-1].append(hour_of(fire.ended_at or fire.due_at))
        return [(group[0], group[-1]) for group in groups]

    def _alerts(self) -> None:
        seen = self.seen
        by: dict[str, list[Alert]] = defaultdict(list)
        for alert in seen.alerts:
            by["fall" if alert.condition in FALLS else alert.condition].append(alert)
        self.figures["alerts"] = dict(Counter(alert.condition for alert in seen.alerts))
        self._one_each("error_rate", by.pop("error_rate", []), self._groups("failed"))
        self._one_each("fire_skipped", by.pop("fire_skipped", []), self._groups("skipped"))
        wrong_clock = seen.spell("clock wrong")
        missed = by.pop("schedule_missed", [])
        # What a clock that was ahead has recorded as missed is taken back, and its alert is over.
        first, end = wrong_clock.first, wrong_clock.end + 0.5
        by_clock = [a for a in missed if first <= a.opened <= end and a.closed is not None]
        rest = [a for a in missed if a not in by_clock[:1]]
        self._one_each("schedule_missed", rest, self._groups("missed"))
        self._falls(by.pop("fall", []))
        budget = seen.spell("budget too small")
        for alert in by.pop("budget", []):
            good = budget.covers(alert.opened) and alert.closed is not None
            self.expect(good, f"a budget alert without a cause: {alert}")
        by.pop("disk", None)  # of the machine that the soak runs on
        self.expect(not by, f"alerts without a cause: {dict(by)}")

    def _one_each(
        self, condition: str, alerts: list[Alert], groups: list[tuple[float, float]]
    ) -> None:
        """Expect one alert for each cause, closed by a complete run after it."""
        said = f"{condition}: {len(groups)} causes {groups}, {len(alerts)} alerts {alerts}"
        if len(alerts) != len(groups):
            self.expect(False, said)
            return
        for alert, (first, last) in zip(alerts, groups, strict=True):
            closed = alert.closed if alert.closed is not None else float("inf")
            good = first - 0.5 <= alert.opened <= last + 0.5
            limit = self._next_done(last) + PATIENCE_HOURS
            self.expect(good and last <= closed + 0.1 <= limit, said)

    def _next_done(self, hour: float) -> float:
        """Return when the first complete run after an hour ended."""
        fires = self.seen.fires.values()
        ends = (hour_of(fire.ended_at) for fire in fires if fire.ended_at and fire.state == "done")
        return min((end for end in ends if end > hour), default=hour)

    def _falls(self, alerts: list[Alert]) -> None:
        worse = self.seen.spell("model worse")
        found = [alert for alert in alerts if worse.covers(alert.opened)]
        others = [alert for alert in alerts if alert not in found]
        late = [alert for alert in found if alert.level == "alert"]
        self.figures |= {
            "fall_found_hours": round(found[0].opened - worse.first, 1) if found else None,
            "fall_closed_hours": round(late[-1].closed - worse.end, 1)
            if late and late[-1].closed is not None
            else None,
            "false_warns": len([a for a in others if a.level == "warn"]),
            "false_alerts": len([a for a in others if a.level == "alert"]),
        }
        self.expect(len(found) == 1 and len(late) == 1, f"the fall has not one ALERT: {alerts}")
        closed = all(alert.closed is not None for alert in found)
        self.expect(closed, f"the fall is over, its alert is open: {found}")
        self.expect(not [a for a in others if a.level == "alert"], f"false ALERTs: {others}")
        self.expect(len(others) <= _WARNS, f"false WARNs: {others}")

    # --- notifications ----------------------------------------------------------------------------

    def _notifications(self) -> None:
        seen = self.seen
        accepted = [n for n in seen.hook if n["status"] == 200]
        ids = Counter(str(note["id"]) for note in accepted)
        states = Counter(told.state for told in seen.told.values())
        again = sum(count - 1 for count in ids.values())
        alerting = sum(told.occasion in ("alert", "schedule_missed") for told in seen.told.values())
        self.figures |= {
            "notifications": len(seen.told),
            "in_digests": states["digested"],
            "requests": len(seen.hook),
            "accepted": len(accepted),
            "accepted_again": again,
            "given_up": states["failed"],
            "alert_notices": alerting,
            "most_an_hour": _most_in_an_hour(accepted),
        }
        sent = {key for key, told in seen.told.items() if told.state == "sent"}
        digested = {told.digest for told in seen.told.values() if told.state == "digested"}
        ended = states.keys() <= {"sent", "digested"}
        self.expect(ended, f"notifications that did not arrive: {dict(states)}")
        self.expect(sent == ids.keys(), "the webhook got others than those that are marked as sent")
        # A digest that was held back is part of a later one.
        known = {key for key, told in seen.told.items() if told.state in ("sent", "digested")}
        self.expect(digested <= known, "a digest did not arrive")
        self.expect(again <= sum(seen.kills.values()) + seen.outages, f"{again} came twice")
        self.expect(_most_in_an_hour(accepted) <= PER_HOUR, "more in an hour than allowed")
        # Opened, risen, over; and again after a week.
        self.expect(alerting <= 4 * len(seen.alerts), f"{alerting} notices: a storm")
        self.expect({n["path"] for n in seen.hook} <= {"/hook"}, "a redirect was followed")

    # --- memory and disk --------------------------------------------------------------------------

    def memory_by_day(self) -> list[float]:
        """Return the most memory of a scheduler on each day, in megabytes."""
        by_day: dict[int, float] = defaultdict(float)
        for hour, _, kilobytes in self.seen.memory:
            day = int(hour // DAY_HOURS)
            by_day[day] = max(by_day[day], kilobytes / 1024)
        return [by_day[day] for day in sorted(by_day) if 0 <= day < self.seen.hours / DAY_HOURS]

    def _memory(self) -> None:
        """Compare the second quarter of the longest life of a scheduler with its last one."""
        lives: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for hour, process, kilobytes in self.seen.memory:
            lives[process].append((hour, kilobytes))
        longest = max(lives.values(), key=lambda life: life[-1][0] - life[0][0])
        begin, end = longest[0][0], longest[-1][0]
        quarter = (end - begin) / 4
        second = [kb for hour, kb in longest if begin + quarter <= hour < begin + 2 * quarter]
        last = [kb for hour, kb in longest if hour >= end - quarter]
        before, after = (statistics.mean(part) / 1024 for part in (second, last))
        self.figures |= {
            "longest_life_hours": round(end - begin),
            "memory_second_quarter_mb": round(before, 1),
            "memory_last_quarter_mb": round(after, 1),
            "memory_peak_mb": round(max(kb for _, _, kb in self.seen.memory) / 1024, 1),
        }
        self.expect(after < 1.1 * before, f"memory grew from {before:.0f} to {after:.0f} MB")

    def _disk(self) -> None:
        seen, kept = self.seen, self.seen.retention_days + 1
        self.figures["backups"] = seen.backups
        self.expect(seen.backups <= 30, f"{seen.backups} backups")
        after = seen.megabytes[kept:]
        if len(after) < 3:
            return
        answers = DAY_HOURS * seen.cases
        early, late = seen.days[:kept], seen.days[kept:]
        before_slope = slope_of(early, seen.megabytes[:kept])
        slope = slope_of(late, after)
        self.figures |= {
            "mb_a_day_before_retention": round(before_slope, 2),
            "mb_a_day_after": round(slope, 2),
            "texts_mb_a_day_after": round(slope_of(late, seen.texts[kept:]), 3),
            "bytes_an_answer_after": round(1e6 * slope / answers),
        }
        level = seen.texts[kept - 1]
        self.expect(max(seen.texts[kept:]) <= 1.2 * level, "the texts grow in spite of retention")
        self.expect(1e6 * slope / answers <= _NUMBERS_BYTES, f"the file grows by {slope:.2f} MB")


def slope_of(days: Sequence[int], values: Sequence[float]) -> float:
    """Return by how much values rise a day, by least squares."""
    return statistics.linear_regression(days, values).slope


def _most_in_an_hour(notes: Iterable[dict[str, object]]) -> int:
    """Return the most messages, doubles aside, in any hour; a second's slack is the network's."""
    times: list[float] = []
    known: set[str] = set()
    most = 0
    for note in sorted(notes, key=lambda note: float(str(note["at"]))):
        if str(note["id"]) in known:
            continue
        known.add(str(note["id"]))
        at = float(str(note["at"]))
        times = [*(time for time in times if time > at - 3_590), at]
        most = max(most, len(times))
    return most


# --- as text --------------------------------------------------------------------------------------


def markdown(account: Account) -> str:
    """Return the figures as a page."""
    seen, f = account.seen, account.figures
    planted = [
        f"| {spell.what} | {_when(spell.first)} | {spell.hours} |"
        for spell in sorted(seen.spells, key=lambda spell: spell.first)
    ]
    memory = account.memory_by_day()
    days = [
        f"| {day} | {seen.megabytes[row]:.1f} | {seen.texts[row]:.2f} | {seen.folder[row]:.0f} "
        f"| {memory[day - 1]:.0f} |"
        for row, day in enumerate(seen.days)
    ]
    alerts = [f"| {c} | {n} |" for c, n in sorted(dict(f["alerts"]).items())]  # type: ignore[call-overload]
    result = "Everything was as promised." if not account.wrong else "\n".join(account.wrong)
    return "\n".join(
        [
            f"{seen.hours:,} hours passed in {seen.seconds / 60:.0f} minutes on a busy machine "
            f"with 2 cores. {result}",
            "",
            "| what was planted | from | hours |",
            "| --- | --- | ---: |",
            *planted,
            "",
            "| hours | |",
            "| --- | ---: |",
            f"| with a complete run | {f['done']} |",
            f"| with a run that failed, because the model did | {f['failed']} |",
            f"| skipped by the budget | {f['skipped']} |",
            f"| missed, and recorded as missed | {f['missed']} |",
            f"| lost | {f['lost']} |",
            f"| started twice | {f['doubled']} |",
            f"| runs with missing or doubled cells | {f['incomplete']} |",
            "",
            f"Schedulers were killed {f['kills_scheduler']} times and runs {f['kills_run']} times, "
            f"beside {f['outages']} outages of the machine.",
            "",
            "| alert | opened and closed |",
            "| --- | ---: |",
            *alerts,
            "",
            f"The model got worse, from 10% of wrong answers to 40%: there was an alert after "
            f"{f['fall_found_hours']} hours, which was closed {f['fall_closed_hours']} hours after "
            f"the model was well again. Without a cause there were {f['false_alerts']} ALERTs of "
            f"the score and {f['false_warns']} WARNs.",
            "",
            "| notifications | |",
            "| --- | ---: |",
            f"| written | {f['notifications']} |",
            f"| of these, told in a digest | {f['in_digests']} |",
            f"| of these, about alerts | {f['alert_notices']} |",
            f"| requests that the webhook got | {f['requests']} |",
            f"| that it accepted | {f['accepted']} |",
            f"| accepted a second time, with the same id | {f['accepted_again']} |",
            f"| given up | {f['given_up']} |",
            f"| most in an hour | {f['most_an_hour']} |",
            "",
            f"The scheduler that lived longest, {f['longest_life_hours']} hours, used "
            f"{f['memory_second_quarter_mb']} MB in its second quarter and "
            f"{f['memory_last_quarter_mb']} MB in its last.",
            "",
            f"Texts are kept for {seen.retention_days} days; numbers stay. Until then the results "
            f"file grew by {f.get('mb_a_day_before_retention', '-')} MB a day, after it by "
            f"{f.get('mb_a_day_after', '-')} MB, {f.get('bytes_an_answer_after', '-')} bytes an "
            f"answer; the texts in it by {f.get('texts_mb_a_day_after', '-')} MB. At the end there "
            f"were {f['backups']} backups.",
            "",
            "| day | results file, MB | texts in it, MB | with backups, MB | scheduler, MB |",
            "| ---: | ---: | ---: | ---: | ---: |",
            *days,
            "",
        ]
    )


def _when(hour: int) -> str:
    return f"day {hour // DAY_HOURS + 1}, {hour % DAY_HOURS:02d}:00"


def as_json(account: Account) -> str:
    """Return the figures as JSON."""
    found = {**account.figures, "wrong": account.wrong, "ok": not account.wrong}
    return json.dumps(found, indent=2)
