"""How the operator talks: chosen at random from a few phrasings each, and results of the phone retold in words."""

from __future__ import annotations

import random
import re

OPENINGS = ("Hi. {problem}", "Hello, I need some help. {problem}", "Hi there, I have a problem. {problem}")
PROBLEMS = {
    "service": "My phone has been showing 'No Service' for the past few hours.",
    "data": "My mobile data is not working properly: it stops working or is very slow. I want to get excellent "
    "internet speed, nothing less, and I have no Wi-Fi here.",
    "mms": "I have been unable to send MMS messages from my messaging app for the past few hours.",
}
GREETINGS = ("{name} here, my phone number is {phone}.", "I'm {name} and my phone number is {phone}.")
PLACES = ("I am {place} at the moment.", "Right now I am {place}.")
NO_PLACE = "I have not been travelling, as far as that matters."
ONLY_PHONE = "I would rather identify myself by my phone number, which is {phone}."
YES = ("Yes, please.", "Yes, go ahead.", "Yes, that is fine with me.")
REFUEL = ("Yes, please add 2.0 GB.", "Yes, I am willing to refuel 2.0 GB.")
NO_PLAN = "I do not want to change my plan."
WHICH_MODE = "Which network mode should I choose?"
WHICH_PERMISSION = "Which permission should I grant?"
BY_HAND = "I would not know what to enter there by hand."
STILL = {
    "service": ("I still have no service.", "It still shows no signal."),
    "data": ("My internet is still not at excellent speed.", "That did not bring my speed to excellent."),
    "mms": ("I still cannot send an MMS.", "Sending an MMS still fails."),
}
FRUSTRATION = ("This is getting a bit frustrating.", "I had hoped that this would do it.", "Hmm, that is annoying.")
SOLVED = {
    "service": ("I have signal again. Thank you, goodbye!", "The signal is back, thanks for your help!"),
    "data": ("The speed is excellent now. Thank you, goodbye!", "Excellent speed at last, thanks for your help!"),
    "mms": ("I can send MMS messages again. Thank you, goodbye!", "MMS works now, thanks for your help!"),
}
CONFUSED = (
    "Sorry, I do not understand. What should I do on my phone?",
    "I am not sure what you mean. What would you like me to do?",
    "Could you tell me step by step what to do?",
)
UNHAPPY = ("Is there nothing else that you can do?", "Can you really not help me with this?")
GAVE_UP = "Then I will look for help elsewhere. Goodbye."
HANDED_OVER = "All right, I will wait for them. Thank you."
ALREADY = "{thing} is already {position}."
FAILED = "That did not work: {what}"

NAMES = {
    "airplane": "Airplane mode",
    "data": "Mobile data",
    "roaming": "Data roaming",
    "saver": "Data saver",
    "wifi": "Wi-Fi",
    "wifi_calling": "Wi-Fi calling",
    "vpn": "The VPN",
}
_ID = re.compile(r"\s*(?:for|of)? ?\b(?:bill )?\b[BCLDP](?=[0-9a-f]*[0-9])[0-9a-f]{4,}\b")
_VPN = re.compile(r"Details: \{.*'server_performance': (?:<[\w.]+: )?'?(\w+)'?>?.*\}")
_WORDS = {"4g_5g_preferred": "4G/5G preferred", "4g_only": "4G only", "3g_only": "3G only", "2g_only": "2G only"}


def pick(rng: random.Random, phrases: tuple[str, ...], **given: str) -> str:
    return rng.choice(phrases).format(**given)


def retold(result: str) -> str:
    """A result of the phone without ids, programmers' notation or line breaks."""
    text = _VPN.sub(r"Server performance: \1.", _ID.sub("", result))
    for mode, words in _WORDS.items():
        text = text.replace(mode, words)
    text = re.sub(r"\n\s*-?\s*", ", ", text.strip()).replace("_", " ")
    text = re.sub(r"([.:]),", r"\1", text)
    return text if text.endswith((".", "!", ")")) else f"{text}."
