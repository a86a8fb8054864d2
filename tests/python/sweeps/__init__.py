"""Whole families of small programs, each compiled and compared with eager.

`scripts/sweep_effects` runs all of them, the tests beside this package a fixed
part. A family yields `Program`s: the text of a function `f`, so that what fails
can be read and run by hand, and what makes its arguments.
"""
