"""Charts as SVG: pure functions from frozen records to drawings, each with its data as a table."""
