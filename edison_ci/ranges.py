"""Ranges of values that people enter, the same in files, commands, forms and HTTP requests."""

RUN_USD = (0.01, 10_000)
"""Dollars of `stop.budget_usd` and its like in files."""
MONTH_USD = (0.01, 1_000_000)
"""Dollars of a month, of a project or a site."""
BUDGET_USD = (0, 1_000_000)
"""Dollars entered for one command or run; the budgets of files hold as well."""
CALLS_AT_ONCE = (1, 1_000)
REPEATS = (1, 100)
ITERATIONS = (1, 100)
CANDIDATES = (1, 5)
GRADE_NOTE_CHARS = 10_000
"""Limit of a line of a labels file."""
REASON_CHARS = 2_000
"""Of the reason for a decision; longer ones, which come from GitHub, are cut."""
ALERT_NOTE_CHARS = 500
COMMENT_CHARS = 20_000
INVITATION_DAYS = (1, 90)
LOG_DAYS = (1, 3_650)
PAGE_ROWS = (1, 200)
"""Rows on a page of a list of the HTTP interface."""
