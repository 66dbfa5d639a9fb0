"""OpenTelemetry: spans and metrics of runs, cells and calls, where an exporter is configured."""
