"""`sinkflex bench`: operators and whole training steps measured, each cell in a process of its own, parity first.

request.py says what may be asked; plan.py turns it into cells, the defaults filled in; run.py has each of them measured
by a child (cell.py), whose subjects are attention.py, log_prob.py and model.py. Scripts call `run.measure`.
"""
