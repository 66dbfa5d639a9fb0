"""Operands of a comparison: which stored cells a run, a ref or a prompt version means.

A run, by id, `latest` or its experiment; a prompt in one version, as PROMPT@HASH; `production`, the
version that a prompt's front matter names; or anything that Git takes for a commit, for which the
newest complete run of that commit stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.git.repository import Repository
from edison_ci.names import did_you_mean
from edison_ci.plan.versions import past_versions
from edison_ci.results.comparison_sample import OWN_MATERIAL, Choice
from edison_ci.store.naming import no_run, run_names
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.store.runs import Run

PRODUCTION = "production"
_VERSION = re.compile(r"(?P<prompt>.+)@(?P<hash>[0-9a-f]{4,64})")
_LABEL = re.compile(r"v([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Operands:
    """Finds what is compared."""

    connection: sqlite3.Connection
    project: Project
    experiment: str | None = None
    """The experiment that is meant where a commit has several."""

    def pair(self, a: str, b: str) -> tuple[Choice, Choice]:
        """Return what A and B stand for; one of them may say of which experiment the other is."""
        first, second = self._run(a), self._run(b)
        known = self.experiment or next((c.run.experiment for c in (first, second) if c), None)
        known = known or self._only()
        chosen_b = second or self._other(b, known, beside=first)
        return first or self._other(a, known, beside=chosen_b), chosen_b

    def one(self, told: str) -> Choice:
        """Return what a single name stands for."""
        return self._run(told) or self._other(told, self.experiment or self._only(), beside=None)

    def run_with(self, *prompts: str) -> Run:
        """Return the newest complete run that has cells of every one of these prompts."""
        for name in prompts:
            if not self._is_prompt(name):
                raise self._no_prompt(name)
        has = "exists (select 1 from cell where run_id = r.id and side = 'head' and prompt = ?)"
        where = " and ".join([has] * len(prompts))
        row = self.connection.execute(
            f"select id from run r where complete = 1 and {where} and experiment = "
            "coalesce(?, experiment) order by created_at desc, rowid desc limit 1",
            (*prompts, self.experiment),
        ).fetchone()
        if row is None:
            raise UsageError(
                f"no complete run has both {' and '.join(prompts)}",
                hint="list both under prompts: of one experiment, then edison run",
            )
        return find_run(self.connection, row[0])

    def _only(self) -> str | None:
        names = [e.id for e in self.project.experiments.values() if not e.file.archived]
        return names[0] if len(names) == 1 else None

    def _run(self, told: str) -> Choice | None:
        """Return a run by id, `latest` or experiment."""
        known = self.connection.execute(
            "select exists (select 1 from run where id = ?1 or experiment = ?1)", (told,)
        ).fetchone()[0]
        if told != "latest" and not known:
            return None
        return Choice(told, find_run(self.connection, told))

    def _other(self, told: str, experiment: str | None, *, beside: Choice | None) -> Choice:
        if told == PRODUCTION:
            return self._production(experiment)
        named = _VERSION.fullmatch(told)
        if named is not None and self._is_prompt(named["prompt"]):
            return self._version(told, named["prompt"], named["hash"])
        return self._commit(told, experiment, beside)

    # --- a version of a prompt --------------------------------------------------------------------

    def _is_prompt(self, name: str) -> bool:
        if any(prompt.id == name for prompt in self.project.prompts.values()):
            return True
        row = self.connection.execute(
            "select exists (select 1 from run, json_each(run.labels) told where told.key = ?)",
            (name,),
        ).fetchone()
        return bool(row[0])

    def _no_prompt(self, name: str) -> UsageError:
        hint = did_you_mean(name, [p.id for p in self.project.prompts.values()], label="prompts")
        return UsageError(f"there is no prompt {name!r}", hint=hint)

    def _version(self, told: str, prompt: str, version: str) -> Choice:
        row = self.connection.execute(
            "select r.id, c.side from run r join cell c on c.run_id = r.id "
            "where r.complete = 1 and r.partial = 0 and c.prompt = ? "
            "and substr(c.version, 1, ?) = ? group by r.id, c.side "
            "order by r.created_at desc, r.rowid desc, c.side = 'head' desc limit 1",
            (prompt, len(version), version),
        ).fetchone()
        if row is None:
            raise UsageError(
                f"no complete run has {prompt} in version {version}", hint=self._versions(prompt)
            )
        return Choice(told, find_run(self.connection, row[0]), row[1], prompt, version)

    def _versions(self, prompt: str) -> str:
        rows = self.connection.execute(
            "select distinct substr(c.version, 1, 8) from cell c join run r on r.id = c.run_id "
            "where c.prompt = ? and r.complete = 1 and r.partial = 0 limit 10",
            (prompt,),
        )
        found = ", ".join(version for (version,) in rows)
        return f"there are: {found}" if found else "run it first: edison run"

    def _production(self, experiment: str | None) -> Choice:
        if experiment is None:
            raise UsageError("production of which experiment?", hint="say --experiment NAME")
        for prompt in self.project.experiment(experiment).prompts:
            if prompt.header.production:
                return self._version(PRODUCTION, prompt.id, self._in_production(prompt))
        raise UsageError(
            f"no prompt of {experiment} says which version is in production",
            hint="write production: HASH into its front matter",
        )

    def _in_production(self, prompt: Prompt) -> str:
        told = prompt.header.production
        label = _LABEL.fullmatch(told)
        if label is None:
            return told
        repository = Repository.find(self.project.root)
        past = past_versions(prompt.path, self.project.root, repository) if repository else []
        number = int(label[1])
        if number > len(past):
            raise UsageError(f"{prompt.id} has no version {told}", hint="write its hash instead")
        return past[number - 1]

    # --- a commit ---------------------------------------------------------------------------------

    def _commit(self, told: str, experiment: str | None, beside: Choice | None) -> Choice:
        repository = Repository.find(self.project.root)
        if repository is None:
            raise no_run(self.connection, told)
        try:
            commit = repository.resolve(told)
        except UsageError as error:
            raise self._nothing(told, error) from None
        if experiment is None:
            names = ", ".join(self.project.experiments)
            raise UsageError(f"{told} of which experiment?", hint=f"say --experiment: {names}")
        if beside is not None and beside.side == "head" and beside.run.base_commit == commit:
            return Choice(told, beside.run, "base")  # measured together, on the same material
        found = self._newest(f"commit_id = ? and {OWN_MATERIAL} = 'head'", experiment, commit)
        if found is not None:
            return Choice(told, found)
        found = self._newest(f"base_commit = ? and {OWN_MATERIAL} = 'head'", experiment, commit)
        if found is not None:
            return Choice(told, found, "base")
        raise UsageError(
            f"there is no complete run of {experiment} at {told} ({commit[:8]})",
            hint=f"measure both together: edison run {experiment} --against {told}",
        )

    def _nothing(self, told: str, error: UsageError) -> UsageError:
        """Return what to say of a name that is neither a run nor a version nor a commit."""
        prompt, sign, version = told.rpartition("@")
        if sign and not prompt.endswith(("^", "~")) and not version.startswith("{"):
            if not self._is_prompt(prompt):
                return self._no_prompt(prompt)
            hint = f"write its hash: edison history {prompt}"
            return UsageError(f"{version!r} is no hash of a version of {prompt}", hint=hint)
        names = [*run_names(self.connection), *self.project.experiments, PRODUCTION]
        near = did_you_mean(told, names)
        hint = f"for runs see: edison status; or {error.hint}"
        if _LABEL.fullmatch(told):
            hint = "versions of a prompt: edison diff A B; here they are PROMPT@HASH"
        elif near.startswith("did you mean") or error.hint.startswith("did you mean"):
            hint = near if near.startswith("did you mean") else error.hint
        return UsageError(f"{told!r} is no run, experiment or commit", hint=hint)

    def _newest(self, where: str, experiment: str, commit: str) -> Run | None:
        row = self.connection.execute(
            f"select id from run where {where} and experiment = ? and complete = 1 and partial = 0 "
            "order by created_at desc, rowid desc limit 1",
            (commit, experiment),
        ).fetchone()
        return None if row is None else find_run(self.connection, row[0])
