"""Airline of tau2-bench: flights, reservations and users. All tools are the agent's."""
