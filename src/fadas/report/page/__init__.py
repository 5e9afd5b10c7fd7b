"""The parts of report.html.

| file           | what it holds                                                              |
|----------------|----------------------------------------------------------------------------|
| `settings.py`  | the settings that all runs share, and those of each method                 |
| `tables.py`    | the table of the comparison, and the differences between methods           |
| `explorer.py`  | the data of the interactive curves and timelines                           |
| `report.js`    | draws them, with Plotly                                                    |
| `report.css`   | how the page looks                                                         |
"""
