"""Events of a run, where it came from, and entries of the audit, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import utc
from edison_ci.numeric import counted, dollars, duration, percent
from edison_ci.store.audit import count_audit as count_audit
from edison_ci.store.audit import read_audit as read_audit
from edison_ci.store.runs import count_events as count_events
from edison_ci.store.runs import newest_events, origin_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.store.audit import AuditEntry


class EventLine(NamedTuple):
    """An event of a run, as text."""

    seq: int
    time: str
    type: str
    text: str


def event_lines(
    connection: sqlite3.Connection, run_id: str, *, limit: int, offset: int = 0
) -> list[EventLine]:
    """Return the events of a run, newest first."""
    return [
        EventLine(event.seq, event.time, event.type, event_sentence(event.type, event.data))
        for event in newest_events(connection, run_id, limit=limit, offset=offset)
    ]


_STATUSES = {
    "PENDING": "The run waits to be started.",
    "EXECUTING": "Answers are being generated.",
    "JUDGING": "Answers are being judged.",
    "AGGREGATING": "Scores are being added up and gates decided.",
    "REFINING": "A better prompt is being sought.",
    "REVIEWING": "A suggestion waits for a decision.",
    "PAUSED": "The run was paused.",
    "COMPLETED": "The run is complete.",
    "FAILED": "The run failed.",
    "CANCELLED": "The run was cancelled.",
}


def event_sentence(kind: str, data: Mapping[str, Any]) -> str:
    """Return an event of a run as a sentence; of an unknown kind, its data."""
    say = _EVENTS.get(kind)
    try:
        sentence = "" if say is None else say(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        sentence = ""  # an event of another version
    return sentence or _plain(kind, data)


def _plain(kind: str, data: Mapping[str, Any]) -> str:
    details = ", ".join(f"{key} {value}" for key, value in data.items())
    return f"{kind}: {details}" if details else f"{kind}."


def _progress(data: Mapping[str, Any]) -> str:
    return (
        f"{data['done']:,} of {counted(data['total'], 'cell')} are done, "
        f"for {dollars(data['cost_microusd'])}."
    )


def _cells(cells: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in cells.items() if count)


def _completed(data: Mapping[str, Any]) -> str:
    statuses = _cells(data["cells"])
    tokens = ""
    if "tokens_in" in data:
        tokens = f", with {data['tokens_in']:,} tokens in and {data['tokens_out']:,} out"
    return (
        f"Done with {counted(data['total'], 'cell')} ({statuses}), "
        f"for {dollars(data['cost_microusd'])}{tokens}."
    )


def _aggregated(data: Mapping[str, Any]) -> str:
    if "interim" in data:
        at, most = data["interim"].get("at"), data["interim"].get("most")
        kind = data["interim"].get("kind", "cases")
        goes_on = "more are measured" if data.get("more") else "this is enough"
        return f"An interim analysis after {at} of {most} {kind} says {data['verdict']}: {goes_on}."
    return f"Scores are added up: {_cells(data['cells'])}."


def _refined(data: Mapping[str, Any]) -> str:
    made = data["suggestions"]
    if not made:
        return "No change of the prompt was suggested."
    named = ", ".join(f"{suggestion['id']} ({suggestion['status']})" for suggestion in made)
    return f"{counted(len(made), 'change')} of the prompt suggested: {named}."


def _ended(data: Mapping[str, Any]) -> str:
    return f"The work ended as {str(data['status']).lower()} after {duration(data['seconds'])}."


def _steered(data: Mapping[str, Any]) -> str:
    verb = "changed the run" if data["done"] else "was refused a change"
    return f"{data['by']} {verb}: {data['said']}."


_EVENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "iteration:started": lambda data: f"The run of {data['experiment']} was started.",
    "status:changed": lambda data: _STATUSES[data["to"]],
    "run:progress": _progress,
    "run:completed": _completed,
    "judge:progress": _progress,
    "aggregate:completed": _aggregated,
    "refine:completed": _refined,
    "cost:alert": lambda data: f"{percent(data['used'])} of {data['budget']} is used.",
    "error": lambda data: f"{data['model']} was stopped: {data['message']}.".replace("..", "."),
    "iteration:completed": _ended,
    "run:steered": _steered,
}


_BROUGHT = {"import": "imported", "push": "pushed", "pull": "pulled", "restore": "restored"}


def origin_sentence(connection: sqlite3.Connection, run_id: str, keys: Sequence[str]) -> str:
    """Return who ran a run elsewhere, who brought it here, and what it is worth; empty if here.

    `keys` are the ones that are trusted.
    """
    origin = origin_of(connection, run_id)
    if origin is None:
        return ""
    ran = f"Ran by {origin.ran_by or 'an unknown person'} on {origin.ran_on or 'another machine'}"
    brought = f"{_BROUGHT[origin.way]} by {origin.brought_by}"
    worth = "signed with a trusted key"
    if not origin.is_trusted(keys):
        worth = "not signed with a trusted key, so it never serves as base"
    return f"{ran}, {brought}, {worth}."


_REFUSED = "refused: "


def audit_sentence(entry: AuditEntry) -> str:
    """Return who did what to what; of an unknown action, its name."""
    action, entity = entry.action, entry.entity
    if action.startswith(_REFUSED):
        return _refusal(entry, action.removeprefix(_REFUSED))
    say = _AUDIT.get(action)
    try:
        deed = (
            say(entry)
            if callable(say)
            else (say or "").format(entity=entity, before=entry.before, after=entry.after)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        deed = ""  # a value of another version
    if not deed:
        deed = f"used {action}" + (f" on {entity}" if entity else "")
    return f"{entry.actor} {deed.rstrip()}."


def _refusal(entry: AuditEntry, action: str) -> str:
    if action == "sign in":
        why = entry.after.get("why") if isinstance(entry.after, dict) else ""
        return f"{entry.actor} could not sign in{f': {why}' if why else ''}."
    about = f" on {entry.entity}" if entry.entity else ""
    why = f": {entry.after}" if isinstance(entry.after, str) and entry.after else ""
    return f"{entry.actor} was refused {action}{about}{why}.".replace("..", ".")


def _grade(entry: AuditEntry) -> str:
    after = entry.after
    flag = " and flagged it for a second look" if after.get("flagged") else ""
    score, scale = after.get("score"), after.get("scale")
    if score is None:
        return f"flagged {entry.entity} for a second look" if flag else f"unflagged {entry.entity}"
    if scale == "thumbs":
        grade = "thumb up" if score >= 0.5 else "thumb down"
    elif scale == "1-5":
        grade = f"{1 + 4 * score:g} of 5"
    else:
        grade = f"{score:g}"
    return f"graded {entry.entity}: {grade}{flag}"


def _with_reason(verb: str) -> Callable[[AuditEntry], str]:
    def say(entry: AuditEntry) -> str:
        after = entry.after
        reason = after.get("reason") if isinstance(after, dict) else after
        return f"{verb} {entry.entity}" + (f": {reason}" if reason else "")

    return say


def _quarantine(entry: AuditEntry) -> str:
    until, reason = entry.after.get("until"), entry.after.get("reason")
    return f"put {entry.entity} in quarantine until {until}: {reason}"


def _suggested(entry: AuditEntry) -> str:
    made = entry.after if isinstance(entry.after, list) else []
    named = ", ".join(f"{suggestion['suggestion']} ({suggestion['status']})" for suggestion in made)
    return f"refined {entry.entity}: {named}" if named else ""


def _promoted(entry: AuditEntry) -> str:
    before = f", before {entry.before}" if entry.before else ""
    return f"put version {entry.after} of {entry.entity} in production{before}"


def _added(entry: AuditEntry) -> str:
    """A page proposes a case for an answer; a command adds one to a file."""
    verb = "proposed a case for" if entry.entity.startswith("cell ") else "added a case to"
    return f"{verb} {entry.entity}"


def _alert(verb: str) -> Callable[[AuditEntry], str]:
    def say(entry: AuditEntry) -> str:
        after = entry.after
        what = f"{verb} alert {after['number']}, {entry.entity.replace('_', ' ')}"
        words = after.get("sentence") or after.get("why") or after.get("note") or ""
        return f"{what}: {words}".rstrip(" .:")

    return say


def _muted(entry: AuditEntry) -> str:
    why = f": {entry.after['reason']}" if entry.after["reason"] else ""
    return (
        f"muted {entry.entity.replace('_', ' ')} until {utc.to_minute(entry.after['until'])}{why}"
    )


_AUDIT: dict[str, str | Callable[[AuditEntry], str]] = {
    "grade": _grade,
    "quarantine add": _quarantine,
    "quarantine remove": "took out of quarantine {entity}",
    "refine": _suggested,
    "optimize": _suggested,
    "propose": "proposed {entity}",
    "promote": _promoted,
    "calibrate": "calibrated {entity}",
    "review approve": "approved {entity}",
    "review approval": "approved {entity}, as one of {after[needed]} people",
    "review reject": _with_reason("rejected"),
    "review comment": _with_reason("commented on"),
    "review edit": "edited {entity} as suggestion {after[as]}",
    "review supersede": _with_reason("superseded"),
    "review sync": "read {entity} as {after[status]} on its forge",
    "edit prompt": "proposed an edit of {entity}",
    "compare by hunk": "compared line by line {entity}",
    "assist": "accepted a draft for {entity}",
    "dataset generate": "added generated cases to {entity}",
    "verify case": "agreed with expected answers of {entity}",
    "dataset fill": "filled gaps of {entity}",
    "dataset adversarial": "added adversarial cases to {entity}",
    "models add": "added the model {entity}",
    "trust add": "let {entity} be sent to {after[host]}",
    "secrets keygen": "created the private key {entity}",
    "secrets seal": "sealed the key {entity}",
    "secrets remove": "removed the sealed key {entity}",
    "secrets rotate": "rotated the private key from {before} to {entity}",
    "schedule add": "added the schedule {entity}",
    "schedule run": "started the schedule {entity}",
    "schedule sync": lambda entry: f"{'wrote' if entry.after else 'removed'} {entry.entity}",
    "schedule remove": "removed the schedule {entity}",
    "schedule enable": "enabled the schedule {entity}",
    "schedule disable": "disabled the schedule {entity}",
    "add case": _added,
    "import cases": "imported cases to {entity}",
    "tag cases": "tagged cases of {entity}",
    "edit case": "edited a case of {entity}",
    "remove case": "removed cases from {entity}",
    "run": "ran {entity}",
    "resume": "resumed a run of {entity}",
    "regrade": "graded run {after[of]} of {entity} again",
    "try": "tried {entity}",
    "rerun": "requested another answer for {entity}",
    "start run": "started a run of {entity}",
    "dispatch run": "asked GitHub to run {entity}",
    "dispatch unconfirmed": _with_reason("could not learn from GitHub whether it runs"),
    "pause run": "paused {entity}",
    "resume run": "resumed {entity}",
    "cancel run": "cancelled {entity}",
    "steer": lambda entry: f"steered {entry.entity}: {', '.join(entry.after)}",
    "loop": "started a loop on {entity}",
    "merge": "merged results into {entity}",
    "import bundle": "imported the bundle {entity}",
    "push runs": lambda entry: f"pushed run {', '.join(entry.after['runs'])} as {entry.entity}",
    "pull runs": lambda entry: f"pulled run {', '.join(entry.after['runs'])} from {entry.entity}",
    "create project": "made the project {entity}",
    "import outputs": "imported outputs for {entity}",
    "import traces": "imported traces to {entity}",
    "import production": "graded a sample of production for {entity}",
    "alert open": _alert("opened"),
    "alert rise": _alert("raised to ALERT"),
    "alert close": _alert("closed"),
    "alerts ack": _alert("acknowledged"),
    "alerts mute": _muted,
    "alerts unmute": "ended the mute of {entity}",
    "notifications test": "sent a test to {entity}: {after}",
    "notification given up": "gave up notifying {entity} of {after[occasion]}: {after[error]}",
    "audit anchor": "anchored the audit log as {entity}",
    "forget": "removed the texts of {entity}",
    "export": "exported {entity}",
    "bundle restore": "restored the project from {entity}",
    "use key": lambda entry: f"used the key {entry.entity} for {entry.after.get('host')}",
    "block answers": lambda entry: (
        f"had {counted(entry.after['cells'], 'answer')} of {entry.entity} kept back by a screen"
    ),
    "export audit": "exported the audit log",
    "gc": lambda entry: f"removed texts older than {entry.after['cutoff'][:10]}",
    "cache clear": "cleared cached answers of {entity}",
    "db upgrade": "upgraded {entity}",
    "db restore": "restored {entity} from {after[from]}",
    "sign in": "signed in from {after[from]}",
    "sign out": "signed out",
    "roles passwd": "set the password of {entity}",
    "roles token": "made a token for {entity}",
    "roles add": "added {entity} as {after[role]}",
    "roles set": "made {entity} {after}, before: {before}",
    "roles remove": "removed the member {entity}",
    "roles transfer": "transferred the project to {entity}",
    "accept invitation": "set a password by invitation",
    "roles invite": "proposed {entity} as {after[role]}",
    "roles link": "made a link for {entity} to set a password",
    "roles sync": "wrote the code owners in {entity}",
    "roles revoke": "revoked the access of {entity}",
}
