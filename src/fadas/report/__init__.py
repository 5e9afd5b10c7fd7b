"""Reports: read run folders, compare, draw. Nothing here trains or imports torch."""
