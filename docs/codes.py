"""What the codes of problems mean and how to fix each; docs/errors.md is written from it."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "ability": (
        "the table of models says that a model takes no tools or no output schema",
        "choose another model, or remove it from the prompt",
    ),
    "address": (
        "`base_url` is not an address, or the provider takes none",
        "write `https://host:port/path`, without user, query or fragment",
    ),
    "approvals": (
        "more people have to approve than the members allow",
        "add reviewers to `members`, or lower `settings.approvals`",
    ),
    "alias": ("a YAML alias names an anchor that is not there", "define `&name` above `*name`"),
    "alias-budget": (
        "YAML aliases would expand to far more than the file holds",
        "write the values out",
    ),
    "cache": (
        "a private project has a shared cache, which would get its answers",
        "remove `cache`, or `settings.private`",
    ),
    "chain": ("a model inherits through too many others", "shorten the chain of `use`"),
    "check": (
        "an entry of `checks` is not a map with exactly one check",
        "write `NAME: ARGUMENT`; weight, name and threshold go inside",
    ),
    "committed": (
        "results, locks or accounts of `.edison` are in Git",
        "the command in the hint takes them out of Git, and leaves them on the disk",
    ),
    "context": (
        "cases are longer than the context of a model, alone or with `max_tokens`",
        "shorten the input, lower `max_tokens`, or use a model with a larger context",
    ),
    "cron": ("a schedule is not five cron fields", "write minute hour day month weekday, in UTC"),
    "cycle": ("models `use` each other in a circle", "let one of them say everything itself"),
    "dataset": ("a dataset ends in something unknown", "use `.jsonl`, `.csv` or `.yaml`"),
    "date": ("a date is not one, or `until` is before `since`", "write `YYYY-MM-DD`"),
    "depth": ("values or checks are nested too deeply", "flatten them"),
    "documents": ("a YAML file holds more than one document", "keep one; remove `---`"),
    "duplicate": (
        "the same thing is listed twice",
        "remove one; for several answers set `repeats`",
    ),
    "duplicate-id": ("two cases have one id", "give each case its own; both rows are named"),
    "duplicate-key": ("a key is given twice in one map", "remove one; both lines are named"),
    "empty": ("there is no experiment, no case or no row left", "add one, or widen `where`"),
    "embedding": (
        "a model that embeds stands where answers are wanted, or the other way round",
        "name an embedding model in `similar: {by: NAME}`, and chat models everywhere else",
    ),
    "encoding": ("a file is not UTF-8", "save it as UTF-8"),
    "env-name": (
        "`key_env` or the like is not the name of a variable",
        "write the NAME of an environment variable, never the key",
    ),
    "exactly-one": ("none or several of keys that exclude each other", "give exactly one"),
    "expect": (
        "a prompt mentions a form of answers, and does not ask for it",
        "write `expect: none`, or the form that answers must have",
    ),
    "expired": ("a quarantine has run out", "fix the case and remove the entry"),
    "fence": ("a fenced code block of a prompt is not closed", "close it with the same fence"),
    "front-matter": ("the front matter of a prompt is not closed", "end it with a line `---`"),
    "gate": (
        "a gate has none or several rules, or a key that its rule does not take",
        "use one of `at_least`, `at_most`, `no_worse_than`",
    ),
    "grid": ("more than 10 model configurations", "shorten a list in `params`"),
    "hash": ("a hash is not one, or is that of something else", "put back what it was made of"),
    "header": ("the header of a CSV file is missing, empty or repeated", "name each column once"),
    "holdout": (
        "too few cases are held out to verify an improvement",
        "add cases; 16 must be held out",
    ),
    "host": ("a host of `trust.yaml` is not one", "write exact `https://host:port`"),
    "id": (
        "an id differs from the file's stem, or is empty, padded or hard to read",
        "rename one of them; type the id again",
    ),
    "key": ("a YAML key is not a text", "quote it"),
    "keys": ("a provider needs other keys, or none", "see `key_env` of the provider"),
    "labels": (
        "the human labels of a rubric cannot be used",
        "see the message; JSONL, a line each",
    ),
    "length": ("a text or list is too short or too long", "the allowed size is in the message"),
    "map": ("`map` names a column that is not there, or makes two of one", "see the header"),
    "margin": ("a margin is not one, or must be relative", "write `5pp` or `10%`"),
    "member": ("a member has neither `github` nor `email`", "give at least one"),
    "merge-key": ("a YAML merge key `<<` is used", "write the keys out, or use `use`"),
    "metric": ("a gate names a metric that is not there", "the nearest is in the hint"),
    "missing": ("something that is needed is not there", "add what the hint names"),
    "moderation": (
        "a model that moderates stands where answers are wanted",
        "name it in `safety: {moderation: {by: NAME}}`, and chat models everywhere else",
    ),
    "more": ("there are more problems than are shown", "fix the first and validate again"),
    "model-file": (
        "the file of weights of a model with `provider: local` is missing or no GGUF file",
        "set the variable that `options.file_env` names to the path of a `.gguf` file",
    ),
    "name": ("a name holds characters that are not allowed", "letters, digits, `-`, `_`, `.`"),
    "no-effect": ("something is written where it does nothing", "remove it"),
    "notification": (
        "a recipient of notifications has keys that do not go together",
        "do as the hint says; docs/watching.md has examples",
    ),
    "no-value": ("a key has no value", "set a value, or remove the key"),
    "not-a-file": ("a path is a folder, FIFO or device", "name a regular file"),
    "not-found": ("a file does not exist", "the nearest name is in the hint"),
    "not-ignored": (
        "the results file is not in `.edison`, and Git does not ignore it",
        "the command in the hint adds it to `.gitignore`",
    ),
    "not-installed": (
        "a check or model needs a library or program that is not installed here",
        "the command that installs it is in the hint",
    ),
    "not-ready": (
        "a note: a run would be refused here, though the files are valid",
        "set the key, allow the host or the code, as the message says",
    ),
    "nul-byte": ("a file holds a NUL byte", "save it as plain text"),
    "number": ("a number is too large, or NaN or infinite", "write a finite number"),
    "old-prices": (
        "the price table is more than a year old, and a model takes its price from it",
        "update it with `edison admin prices update`",
    ),
    "options": ("the provider takes no options, or not these", "see the table of options"),
    "owner": ("no member is an owner", "give a member `role: owner`; the last one stays"),
    "leaked-key": (
        "a line that the change adds has what looks like a real key",
        "revoke it, and remove it; if it is none, write `not-a-secret` on its line",
    ),
    "left-out": ("the model does not take a parameter, so it is not sent", "remove the parameter"),
    "params": ("a parameter or its value is not accepted", "change it, or leave out the model"),
    "path": (
        "a path is absolute, leaves the project or is a link out of it",
        "write it relative to `edison.yaml`, with forward slashes",
    ),
    "price": (
        "a price is not one, or is not known (then a run with a budget is refused)",
        "write `price: {in: ..., out: ...}` or `price: free`",
    ),
    "prices": (
        "`.edison/prices.json` is not a price table",
        "make it with `edison admin prices update`",
    ),
    "prompt-type": (
        "a grader stands where a generator belongs, or the other way round",
        "set `type` in its front matter, or list it in the other place",
    ),
    "proof": (
        "`validate --prove`: an expected output fails a check, or a wrong answer passes all",
        "fix the expected output, or make the check stricter",
    ),
    "python": ("a `python` check does not name a function", "write `file.py:function`"),
    "ragged-row": ("a CSV row has more or fewer cells than the header", "quote cells with commas"),
    "range": ("a number is out of its range", "the range is in the message"),
    "regex": ("a pattern is not a regular expression", "the message says where it breaks"),
    "renamed-key": ("a key has a new name; the old one still works", "write the new name"),
    "render": ("a prompt cannot be rendered for a case", "see the template and that case"),
    "repeated-input": (
        "cases have the same input, as the prompt renders it, so they count as one",
        "vary the inputs, or use a variable of the dataset in the prompt",
    ),
    "request-header": (
        "a file sets a header that it may not set, or one that is no header",
        "remove it, or allow it under `services` in `.edison/trust.yaml`",
    ),
    "retired": ("a model is retired, or will be within 60 days", "choose a newer one"),
    "scale": ("a scale is not one, or stands where none belongs", "write `0-5` or `{min, max}`"),
    "schema": ("a JSON Schema of the project is not valid", "the message names the place in it"),
    "secret": (
        "something looks like a key or password",
        "remove it, revoke it, and use an environment variable instead",
    ),
    "sections": ("role sections are empty or out of order", "system?, (user, assistant)*, user"),
    "share": ("a share is not one", "write `80%` or `0.8`"),
    "short": ("a prompt has fewer than 50 characters", "say what a good answer is"),
    "size": ("a file or value is larger than allowed", "split it; for data raise `limits`"),
    "skipped": (
        "some cases lack a variable and will not be run",
        "complete them, or use the filter `default`",
    ),
    "store": ("`store` is for `provider: replay`", "remove it, or change the provider"),
    "syntax": ("a file is not valid YAML, JSON or CSV", "the place is where reading stopped"),
    "synthetic": ("synthetic data is not allowed here", "see `settings.allow_synthetic_datasets`"),
    "tag": ("a YAML tag such as `!!python` is used", "remove it"),
    "template": (
        "a template does what the template language does not allow",
        "see the language in docs/files.md",
    ),
    "tools": ("tools are not a list of name, description and parameters", "see the message"),
    "trust": (
        "a key would be sent to a host, or by an http model to a path, that is not trusted with it",
        "allow the pair, or the path under `services`, in `.edison/trust.yaml`, or change "
        "`base_url`",
    ),
    "type": ("a value is of another type", "the type is in the message; quote texts"),
    "unknown-case": ("`quarantine.yaml` names a case that is not there", "remove the entry"),
    "unknown-check": ("there is no check of this name", "see docs/checks.md"),
    "unknown-experiment": ("there is no experiment of this name", "the nearest is in the hint"),
    "unknown-key": ("a key is not known here", "the nearest is in the hint"),
    "unknown-model": ("`models.yaml` has no model of this name", "the nearest is in the hint"),
    "unreadable": ("a file cannot be read", "see who may read it"),
    "value": ("a value is not one of those allowed", "they are in the hint"),
    "variable": (
        "a variable is used and not declared, declared and not used, or no case has it",
        "make prompt, `inputs` and data agree",
    ),
    "vendor": (
        "litellm would call a vendor whose place is not known",
        "put one of the vendors it names before the slash, or use `provider: openai_compatible`",
    ),
    "weights": ("the weights of a rubric do not sum to 1", "use those of the hint, or `normalize`"),
    "where": ("a condition on cases is not understood", "see `datasets[].where`"),
}
"""Codes of problems: what is wrong, and how to fix it."""
