"""Reports of runs: Markdown, HTML, JSON, JUnit, SARIF, CSV, pull-request comments and charts."""
