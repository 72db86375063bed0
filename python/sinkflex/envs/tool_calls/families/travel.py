"""Journeys: report's own family, never seen in training or tuning."""

from __future__ import annotations

from ..family import Family, Phrases, request

TRAVEL = Family(
    "travel",
    (
        request(
            "find_flight",
            "Find a flight between two cities.",
            {"origin": "city", "destination": "city"},
            report=Phrases(
                (
                    "Find a flight from {origin} to {destination}.",
                    "Search flights leaving {origin} for {destination}.",
                    "Which flight goes from {origin} to {destination}?",
                ),
                (
                    "I have to fly from {origin} to {destination}.",
                    "How do I get by air from {origin} to {destination}?",
                ),
            ),
        ),
        request(
            "book_hotel",
            "Book a hotel in a city.",
            {"city": "city", "nights": "few"},
            report=Phrases(
                (
                    "Book a hotel in {city} for {nights} nights.",
                    "Reserve a hotel room in {city}, {nights} nights.",
                    "Please book {nights} nights in {city}.",
                ),
                ("I need a place to sleep in {city} for {nights} nights.", "We are staying {nights} nights in {city}."),
            ),
        ),
        request(
            "cancel_trip",
            "Cancel a trip.",
            {"trip": "trip"},
            report=Phrases(
                ("Cancel trip {trip}.", "Please cancel my journey {trip}.", "Have trip {trip} cancelled."),
                ("I am not going on trip {trip}.", "Trip {trip} is off, I have to stay at home."),
            ),
        ),
    ),
)
