"""Retail of tau2-bench: orders of an online shop. All tools are the agent's."""
