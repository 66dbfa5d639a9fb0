"""The library: what the commands do, from Python.

    from edison_ci import compare, load, run

    project = load("my-prompts")
    for result in run(project, against="main"):
        print(result.run.verdict, result.overall.composite)
    compare(project, "main", "latest")

The guarantees are those of the commands: every answer is stored before it is graded, nothing is
paid for twice, budgets hold, a run that was stopped goes on with `resume`, and whoever may not make
calls is refused. In a notebook a result shows itself.
"""
