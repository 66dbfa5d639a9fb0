"""Events of a run, where it came from, and entries of the audit, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.numeric import counted, dollars, duration, percent
from edison_ci.store.origins import origin_of
from edison_ci.store.runs import count_events as count_events
from edison_ci.store.runs import newest_events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.store.audit import AuditEntry

# --- events ---------------------------------------------------------------------------------------


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
        said = "" if say is None else say(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        said = ""  # an event of another version
    return said or _plain(kind, data)


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
    found = _cells(data["cells"])
    tokens = ""
    if "tokens_in" in data:
        tokens = f", with {data['tokens_in']:,} tokens in and {data['tokens_out']:,} out"
    return (
        f"Done with {counted(data['total'], 'cell')} ({found}), "
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
    named = ", ".join(f"{each['id']} ({each['status']})" for each in made)
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
    ran = f"Ran by {origin.ran_by or 'somebody'} on {origin.ran_on or 'another machine'}"
    brought = f"{_BROUGHT[origin.way]} by {origin.brought_by}"
    worth = "signed with a trusted key"
    if not origin.is_trusted(keys):
        worth = "not signed with a trusted key, so it never serves as base"
    return f"{ran}, {brought}, {worth}."


# --- audit ----------------------------------------------------------------------------------------

_REFUSED = "refused: "


def audit_sentence(entry: AuditEntry) -> str:
    """Return who did what to what; of an unknown action, its name."""
    action, entity = entry.action, entry.entity
    if action.startswith(_REFUSED):
        return _refusal(entry, action.removeprefix(_REFUSED))
    say = _AUDIT.get(action)
    try:
        said = "" if say is None else say(entry)
    except (KeyError, TypeError, ValueError, AttributeError):
        said = ""  # a value of another version
    if not said:
        said = f"used {action}" + (f" on {entity}" if entity else "")
    return f"{entry.actor} {said}."


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
    named = ", ".join(f"{each['suggestion']} ({each['status']})" for each in made)
    return f"refined {entry.entity}: {named}" if named else ""


def _promoted(entry: AuditEntry) -> str:
    before = f", before {entry.before}" if entry.before else ""
    return f"put version {entry.after} of {entry.entity} in production{before}"


def _added(entry: AuditEntry) -> str:
    """A page proposes a case for an answer; a command adds one to a file."""
    verb = "proposed a case for" if entry.entity.startswith("cell ") else "added a case to"
    return f"{verb} {entry.entity}"


def _text(verb: str) -> Callable[[AuditEntry], str]:
    return lambda entry: f"{verb} {entry.entity}".rstrip()


def _alert(verb: str) -> Callable[[AuditEntry], str]:
    def say(entry: AuditEntry) -> str:
        after = entry.after
        what = f"{verb} alert {after['number']}, {entry.entity.replace('_', ' ')}"
        said = after.get("sentence") or after.get("why") or after.get("note") or ""
        return f"{what}: {said}".rstrip(" .:")

    return say


def _muted(entry: AuditEntry) -> str:
    why = f": {entry.after['reason']}" if entry.after["reason"] else ""
    return f"muted {entry.entity.replace('_', ' ')} until {entry.after['until'][:16]} UTC{why}"


_AUDIT: dict[str, Callable[[AuditEntry], str]] = {
    "grade": _grade,
    "quarantine add": _quarantine,
    "quarantine remove": _text("took out of quarantine"),
    "refine": _suggested,
    "optimize": _suggested,
    "propose": _text("proposed"),
    "promote": _promoted,
    "calibrate": _text("calibrated"),
    "review approve": _text("approved"),
    "review approval": lambda entry: (
        f"approved {entry.entity}, as one of {entry.after['needed']} people"
    ),
    "review reject": _with_reason("rejected"),
    "review comment": _with_reason("commented on"),
    "review edit": lambda entry: f"edited {entry.entity} as suggestion {entry.after['as']}",
    "review supersede": _with_reason("superseded"),
    "review sync": lambda entry: f"read {entry.entity} as {entry.after['status']} on its forge",
    "edit prompt": _text("proposed an edit of"),
    "compare by hunk": _text("compared line by line"),
    "assist": _text("accepted a draft for"),
    "dataset generate": _text("added generated cases to"),
    "verify case": _text("agreed with expected answers of"),
    "dataset fill": _text("filled gaps of"),
    "dataset adversarial": _text("added adversarial cases to"),
    "models add": _text("added the model"),
    "trust add": lambda entry: f"let {entry.entity} be sent to {entry.after['host']}",
    "secrets keygen": _text("created the private key"),
    "secrets seal": _text("sealed the key"),
    "secrets remove": _text("removed the sealed key"),
    "secrets rotate": lambda entry: (
        f"rotated the private key from {entry.before} to {entry.entity}"
    ),
    "schedule add": _text("added the schedule"),
    "schedule run": _text("started the schedule"),
    "schedule sync": lambda entry: f"{'wrote' if entry.after else 'removed'} {entry.entity}",
    "schedule remove": _text("removed the schedule"),
    "schedule enable": _text("enabled the schedule"),
    "schedule disable": _text("disabled the schedule"),
    "add case": _added,
    "import cases": _text("imported cases to"),
    "tag cases": _text("tagged cases of"),
    "edit case": _text("edited a case of"),
    "remove case": _text("removed cases from"),
    "run": _text("ran"),
    "resume": _text("resumed a run of"),
    "regrade": lambda entry: f"graded run {entry.after['of']} of {entry.entity} again",
    "try": _text("tried"),
    "rerun": _text("requested another answer for"),
    "start run": _text("started a run of"),
    "dispatch run": _text("asked GitHub to run"),
    "dispatch unconfirmed": _with_reason("was not told by GitHub whether it runs"),
    "pause run": _text("paused"),
    "resume run": _text("resumed"),
    "cancel run": _text("cancelled"),
    "steer": lambda entry: f"steered {entry.entity}: {', '.join(entry.after)}",
    "loop": _text("started a loop on"),
    "merge": _text("merged results into"),
    "import bundle": _text("imported the bundle"),
    "push runs": lambda entry: f"pushed run {', '.join(entry.after['runs'])} as {entry.entity}",
    "pull runs": lambda entry: f"pulled run {', '.join(entry.after['runs'])} from {entry.entity}",
    "create project": _text("made the project"),
    "import outputs": _text("imported outputs for"),
    "import traces": _text("imported traces to"),
    "import production": _text("graded a sample of production for"),
    "alert open": _alert("opened"),
    "alert rise": _alert("raised to ALERT"),
    "alert close": _alert("closed"),
    "alerts ack": _alert("acknowledged"),
    "alerts mute": _muted,
    "alerts unmute": _text("ended the mute of"),
    "notifications test": lambda entry: f"sent a test to {entry.entity}: {entry.after}",
    "notification given up": lambda entry: (
        f"gave up telling {entry.entity} of {entry.after['occasion']}: {entry.after['error']}"
    ),
    "audit anchor": _text("anchored the audit log as"),
    "forget": _text("removed the texts of"),
    "export": _text("exported"),
    "bundle restore": _text("restored the project from"),
    "use key": lambda entry: f"used the key {entry.entity} for {entry.after.get('host')}",
    "block answers": lambda entry: (
        f"had {counted(entry.after['cells'], 'answer')} of {entry.entity} kept back by a screen"
    ),
    "export audit": lambda entry: "exported the audit log",
    "gc": lambda entry: f"removed texts older than {entry.after['cutoff'][:10]}",
    "cache clear": _text("cleared cached answers of"),
    "db upgrade": _text("upgraded"),
    "db restore": lambda entry: f"restored {entry.entity} from {entry.after['from']}",
    "sign in": lambda entry: f"signed in from {entry.after['from']}",
    "sign out": lambda entry: "signed out",
    "roles passwd": _text("set the password of"),
    "roles token": _text("made a token for"),
    "roles add": lambda entry: f"added {entry.entity} as {entry.after['role']}",
    "roles set": lambda entry: f"made {entry.entity} {entry.after}, before: {entry.before}",
    "roles remove": _text("removed the member"),
    "roles transfer": _text("transferred the project to"),
    "roles invite": lambda entry: f"proposed {entry.entity} as {entry.after['role']}",
    "roles sync": _text("wrote the code owners in"),
    "roles revoke": _text("revoked the access of"),
}
