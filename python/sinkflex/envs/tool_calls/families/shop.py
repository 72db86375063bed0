"""Orders and purchases."""

from __future__ import annotations

from ..family import Family, Phrases, request

SHOP = Family(
    "shop",
    (
        request(
            "track_order",
            "Say where an order is.",
            {"order": "order"},
            train=Phrases(
                (
                    "Track order {order}.",
                    "Please find out where order {order} is.",
                    "Check the delivery of {order}.",
                    "Track {order} for me.",
                    "Tell me where {order} is right now.",
                    "Look where my order {order} is.",
                ),
                (
                    "When will {order} get here?",
                    "I am still waiting for order {order}.",
                    "Has {order} been sent yet?",
                    "Is {order} on its way?",
                ),
            ),
            tune=Phrases(
                ("Look up the delivery of {order}.", "Could you track my parcel {order}?"),
                ("Any news about order {order}?", "Why is {order} not here yet?"),
            ),
            report=Phrases(
                (
                    "Give me the tracking of order {order}.",
                    "I would like you to track {order}.",
                    "Show the current place of order {order}.",
                ),
                ("{order} should have come days ago, what happened?", "How far along is order {order}?"),
            ),
        ),
        request(
            "cancel_order",
            "Cancel an order.",
            {"order": "order"},
            train=Phrases(
                (
                    "Cancel order {order}.",
                    "Please cancel {order} for me.",
                    "I want to cancel my order {order}.",
                    "Cancel {order}, please.",
                    "Stop order {order}.",
                    "Order {order} must be cancelled.",
                ),
                (
                    "I do not need order {order} any more.",
                    "Order {order} was a mistake.",
                    "Take {order} back, I bought it twice.",
                    "I do not want {order} after all.",
                ),
            ),
            tune=Phrases(
                ("Can order {order} be cancelled?", "Call off order {order}."),
                ("I changed my mind about {order}.", "Please never send {order}."),
            ),
            report=Phrases(
                (
                    "Could you get {order} cancelled?",
                    "Withdraw my order {order}.",
                    "Have order {order} cancelled today.",
                ),
                ("{order} was bought by accident, get rid of it.", "Please do not ship order {order}."),
            ),
        ),
        request(
            "buy_item",
            "Buy an item.",
            {"item": "item", "quantity": "few"},
            train=Phrases(
                (
                    "Buy {quantity} of the {item}.",
                    "Order {quantity} pieces of {item}.",
                    "Please buy {item}, {quantity} of them.",
                    "I want to buy {quantity} {item}.",
                    "Buy me the {item}, {quantity} pieces.",
                    "Get me {quantity} times {item}.",
                ),
                (
                    "I could use {quantity} of your {item}.",
                    "We need the {item}, {quantity} in all.",
                    "I will take {quantity} of the {item}.",
                    "Please send us {quantity} {item}.",
                ),
            ),
            tune=Phrases(
                ("Purchase {item}, {quantity} units.", "Let me buy {item} x {quantity}."),
                ("Our club is short of {quantity} {item}.", "{quantity} of these {item} would be great."),
            ),
            report=Phrases(
                (
                    "Please put {quantity} of the {item} in my cart and pay.",
                    "I would like to purchase {quantity} x {item}.",
                    "Can I buy {item}? Make it {quantity}.",
                ),
                ("The {item} is a lovely gift, I need {quantity}.", "Ship {quantity} of that {item} to my house."),
            ),
        ),
    ),
)
