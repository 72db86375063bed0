"""Telecom of tau2-bench: the agent acts on accounts and lines, the user on the phone in hand."""
