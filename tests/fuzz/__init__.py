"""Random programs, compiled against eager.

`generate` makes a program from a seed, `runner` runs it both ways and compares
everything the program can see, `shrink` cuts a failing one down to the
statements that matter. `scripts/fuzz` runs them for hours, `test_fuzz.py` a
fixed part in CI.
"""
