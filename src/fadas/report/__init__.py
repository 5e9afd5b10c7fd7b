"""Reports on finished runs: a table, figures and an HTML page. Nothing here trains or imports torch."""
