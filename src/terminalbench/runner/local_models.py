"""The models of a run that are files: served before its first trial, and until it ends, however it ends."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from terminalbench.experiments.lessons import unwrapped
from terminalbench.experiments.profiles import Profile
from terminalbench.llm.local.spec import LocalSpec, is_local, parse_local

if TYPE_CHECKING:
    from terminalbench.llm.local.lease import ServerLease


def local_models(configs: Iterable[Mapping[str, Any]]) -> list[LocalSpec]:
    """The model files that JobConfigs ask, with the window that each asks for."""
    found: dict[LocalSpec, None] = {}
    for config in configs:
        agent = unwrapped(config["agents"][0])
        if is_local(model := agent.get("model_name")):
            spec = parse_local(model)
            found[replace(spec, num_ctx=agent.get("kwargs", {}).get("num_ctx") or spec.num_ctx)] = None
    return list(found)


def profile_models(profiles: Iterable[Profile]) -> list[LocalSpec]:
    """The model files of profiles, with the window that each asks for."""
    specs = [(parse_local(one.model), one.options.get("num_ctx")) for one in profiles if is_local(one.model)]
    return list(dict.fromkeys(replace(spec, num_ctx=window or spec.num_ctx) for spec, window in specs))


@contextmanager
def served(specs: Iterable[LocalSpec], note: Callable[[str], None]) -> Generator[None]:
    """Serve each of the models in here. Raises `ModelError` for one that cannot be served.

    In the end it is noted how much each has read and written, and how fast.
    """
    leases: list[ServerLease] = []
    with ExitStack() as held:
        for spec in specs:
            from terminalbench.llm.local.lease import lease

            found = lease(spec)
            held.callback(found.close)
            order = found.served.order
            slots = "one question" if order.slots == 1 else f"{order.slots} questions"
            note(f"{order.name} is served at {found.url}: {slots} requests at once, {order.window} tokens each")
            leases.append(found)
        yield
        for found in leases:
            from terminalbench.llm.local.lease import speed

            if (told := speed(found.url, found.token)) is not None:
                note(f"{found.name}: {told}")
