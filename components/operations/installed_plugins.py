"""List the plugins of all registries."""

from ratchet.components.core import list_domains, list_envs
from ratchet.components.core.environment_registry import Plugin, loaded_plugins
from ratchet.components.interop.reader_registry import list_formats
from ratchet.components.interop.trajectory_writers import list_written_formats
from ratchet.components.models.policy_factory import list_policies
from ratchet.components.sandboxes.sandbox_config import list_backends
from ratchet.components.trajectories.trajectory_list import list_rewards


def installed_plugins() -> list[Plugin]:
    """Load the plugins of every registry and return them, by group and name. A broken one names its `problem`."""
    for load in (
        list_envs,
        list_domains,
        list_formats,
        list_written_formats,
        list_policies,
        list_rewards,
        list_backends,
    ):
        load()
    return sorted(loaded_plugins(), key=lambda plugin: (plugin.group, plugin.name))
