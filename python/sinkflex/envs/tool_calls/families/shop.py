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
                ("Track order {order}.", "Please find out where order {order} is.", "Check the delivery of {order}."),
                ("When will {order} get here?", "I am still waiting for order {order}.", "Has {order} been sent yet?"),
            ),
            tune=Phrases(("Look up the shipping of {order}.",), ("Any news about {order}?",)),
            report=Phrases(
                ("Locate my parcel {order}.", "Give me the tracking for {order}."),
                ("{order} should have come days ago, what happened?", "How far along is {order}?"),
            ),
        ),
        request(
            "cancel_order",
            "Cancel an order.",
            {"order": "order"},
            train=Phrases(
                ("Cancel order {order}.", "Please cancel {order} for me.", "I want to cancel my order {order}."),
                (
                    "I do not need order {order} any more.",
                    "Order {order} was a mistake.",
                    "Stop {order}, I bought it twice.",
                ),
            ),
            tune=Phrases(("Call off order {order}.",), ("I changed my mind about buying {order}.",)),
            report=Phrases(
                ("Could you get {order} cancelled?", "Withdraw order {order}."),
                ("{order} was bought by accident, get rid of it.", "Please do not ship {order} after all."),
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
                ),
                (
                    "I could use {quantity} of your {item}.",
                    "We need the {item}, {quantity} in all.",
                    "Get me {quantity} times {item}.",
                ),
            ),
            tune=Phrases(
                ("Purchase {item}, {quantity} units.",), ("Our club is short of {quantity} units of {item}.",)
            ),
            report=Phrases(
                (
                    "Put {quantity} units of the {item} in my cart and pay.",
                    "I would like to purchase {quantity} x {item}.",
                ),
                (
                    "A {item} is a lovely gift, I will take {quantity}.",
                    "Send {quantity} more of that {item} to my house.",
                ),
            ),
        ),
    ),
)
