"""The phone in words: what an agent may ask its user to do, and how. One sentence for each of the user's tools.

The operator understands these sentences and many others (`instructions`); the scripted agents speak these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SENTENCES: Mapping[str, str] = {
    "check_status_bar": "check the status bar",
    "check_network_status": "check the network status",
    "check_network_mode_preference": "check the preferred network mode",
    "set_network_mode_preference": "set the preferred network mode to {mode}",
    "run_speed_test": "run a speed test",
    "toggle_airplane_mode": "toggle airplane mode",
    "check_sim_status": "check the SIM card",
    "reseat_sim_card": "take the SIM card out and re-insert it",
    "toggle_data": "toggle mobile data",
    "toggle_roaming": "toggle data roaming",
    "check_data_restriction_status": "check the data saver",
    "toggle_data_saver_mode": "toggle the data saver",
    "check_apn_settings": "check the APN settings",
    "set_apn_settings": "change the APN settings by hand",
    "reset_apn_settings": "reset the APN settings",
    "check_wifi_status": "check the Wi-Fi",
    "toggle_wifi": "toggle Wi-Fi",
    "check_wifi_calling_status": "check Wi-Fi calling",
    "toggle_wifi_calling": "toggle Wi-Fi calling",
    "check_vpn_status": "check the VPN",
    "connect_vpn": "connect to the VPN",
    "disconnect_vpn": "disconnect from the VPN",
    "check_installed_apps": "check which apps are installed",
    "check_app_status": "check the status of the {app_name} app",
    "check_app_permissions": "check the permissions of the {app_name} app",
    "grant_app_permission": "grant the {app_name} app the {permission} permission",
    "can_send_mms": "check whether an MMS can be sent",
    "reboot_device": "restart the phone",
    "check_payment_request": "check whether a payment request has arrived",
    "make_payment": "pay the payment request that was sent",
}
MODES: Mapping[str, str] = {
    "4g_5g_preferred": "4G/5G preferred",
    "4g_only": "4G only",
    "3g_only": "3G only",
    "2g_only": "2G only",
}


def sentence(tool: str, arguments: Mapping[str, Any] | None = None) -> str:
    """What the user is asked to do, without a name of a tool."""
    given = {key: MODES.get(str(value), str(value)) for key, value in (arguments or {}).items()}
    return SENTENCES[tool].format_map(given)


def request(sentences: Sequence[str]) -> str:
    """Several of them as one message, in order."""
    return "Please do the following. " + " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)
