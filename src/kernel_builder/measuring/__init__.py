"""Times of kernels: what samples come to, how two builds compare, and what of it is drawn. Pure.

statistics.py   samples -> medians, spread, outliers; two series of rounds -> a ratio with its uncertainty
results.py      what was measured, as values and as JSON
figures.py      results -> the curves of a figure
"""
