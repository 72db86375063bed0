"""What the package supplies for telecom: two databases (accounts and the phone), both policies, tasks and splits.

Two habits of the package are set right for an episode of one's own, neither with an effect on a reward:
- the VPN details object is an attribute of the tools' class, so that breaking the VPN of one phone breaks that of every
  phone in the process: here each environment has its own;
- a data refuelling for a customer without a draft bill invents a random bill id, so that no run can be replayed: here
  the id follows from the customer and the number of bills.

As for the other domains, the variable SINKFLEX_TAU2_DATA names a clone whose files are read in place of the package's,
by the package's own code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..package import hash_files, import_domain, named_folder, reading, version

DOMAIN = "telecom"
FILES = ("TASK_SET", "DB", "USER_DB", "MAIN_POLICY", "MAIN_POLICY_SOLO", "TECH_SUPPORT_POLICY_MANUAL")


@dataclass(frozen=True)
class TelecomPackage:
    """`database` (accounts), `user_database` (the phone) and `vpn_details` are the base that all episodes share: nobody
    may change them."""

    name: str
    policy: str
    solo_policy: str
    database: Any
    user_database: Any
    vpn_details: Any
    environment_type: Any
    tools_type: Any
    user_tools_type: Any
    tasks: Mapping[str, Any]
    splits: Mapping[str, Sequence[str]]
    version: str
    data_sha256: str

    def environment(self, database: Any, user_database: Any, vpn_details: Any, solo: bool = False) -> Any:
        """The package's own Environment over these, without reading its files again."""
        user_tools = self.user_tools_type(user_database)
        user_tools.default_vpn_details = vpn_details
        environment = self.environment_type(
            domain_name=self.name, policy=self.policy, tools=self.tools_type(database), user_tools=user_tools
        )
        # Set directly: set_solo_mode builds all 43 tool schemas to compare their names.
        environment.solo_mode = solo
        return environment


_LOADING = threading.Lock()


def load_package() -> TelecomPackage:
    """Loaded once a process, however many threads ask. Raises MissingExtra when the package is absent or another one of
    that name, InfraFault when its data cannot be read."""
    with _LOADING:
        return _kept()


@functools.cache
def _kept() -> TelecomPackage:
    return read_package()


def read_package() -> TelecomPackage:
    """`load_package` with nothing kept: whatever the files and the variable say now."""
    module, paths = import_domain(DOMAIN)
    files = [Path(getattr(paths, f"TELECOM_{kind}_PATH")) for kind in FILES]
    folder = named_folder(DOMAIN, [file.name for file in files])
    with reading(DOMAIN, folder), _files_in(module, folder):
        probe = module.get_environment()
        has_splits = hasattr(module, "get_tasks_split")
        tasks = {task.id: task for task in (module.get_tasks(None) if has_splits else module.get_tasks())}
        splits = (module.get_tasks_split() if has_splits else None) or {"base": list(tasks)}
        return TelecomPackage(
            name=DOMAIN,
            policy=probe.get_policy(),
            solo_policy=module.get_environment(solo_mode=True).get_policy(),
            database=probe.tools.db,
            user_database=probe.user_tools.db,
            vpn_details=probe.user_tools.default_vpn_details.model_copy(deep=True),
            environment_type=type(probe),
            tools_type=_with_steady_bill_ids(type(probe.tools)),
            user_tools_type=type(probe.user_tools),
            tasks=tasks,
            splits={split: tuple(i for i in tasks if i in frozenset(ids)) for split, ids in splits.items()},
            version=version(folder),
            data_sha256=hash_files(files if folder is None else [folder / file.name for file in files]),
        )


@contextlib.contextmanager
def _files_in(module: Any, folder: Path | None) -> Iterator[None]:
    """Inside, the package's module reads its files from `folder`."""
    own = {name: path for name, path in vars(module).items() if name.startswith("TELECOM_") and name.endswith("_PATH")}
    try:
        if folder is not None:
            vars(module).update({name: folder / Path(path).name for name, path in own.items()})
        yield
    finally:
        vars(module).update(own)


def _with_steady_bill_ids(tools_type: Any) -> Any:
    """The package's agent tools, with an id of its own for a bill that a charge creates."""

    class Tools(tools_type):  # type: ignore[misc]
        def _apply_one_time_charge(self, customer_id: str, *args: Any, **kwargs: Any) -> None:
            before = len(self.db.bills)
            super()._apply_one_time_charge(customer_id, *args, **kwargs)
            if len(self.db.bills) > before:
                bill, customer = self.db.bills[-1], self.get_customer_by_id(customer_id)
                steady = "B" + hashlib.sha256(f"{customer_id} {before}".encode()).hexdigest()[:8]
                customer.bill_ids[customer.bill_ids.index(bill.bill_id)] = steady
                bill.bill_id = steady

    return Tools
