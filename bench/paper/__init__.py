"""The evaluation of the Skyplane paper (NSDI 2023, section 7), predicted by this planner.

    python -m bench.paper GRID_DIR [--figure 1 7 8 9c 10 table2] [--out docs] [--json]

One module per figure computes it, `document` writes the page, `plots` draws.
"""
