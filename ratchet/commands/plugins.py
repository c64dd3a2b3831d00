"""Command on plugins: plugins."""

from ratchet.commands import AsJson
from ratchet.render.terminal import print_json, print_table, print_text


def plugins(as_json: AsJson = False) -> int:
    """List what installed packages add: environments, domain profiles, readers, writers, policies, rewards, sandboxes.

    Exit code 2 where one is broken; the others work. Ratchet's docs/library.md describes the entry points.
    """
    import logging

    from ratchet.components.operations.installed_plugins import installed_plugins

    log = logging.getLogger("ratchet.plugins")
    log.disabled = True  # the table below says the same
    try:
        found = installed_plugins()
    finally:
        log.disabled = False
    if as_json:
        print_json(found)
    elif not found:
        print_text("no installed package adds a plugin; see Ratchet's docs/library.md")
    else:
        rows = [(each.group, each.name, each.package, each.problem or "works") for each in found]
        print_table(("group", "name", "package", "state"), rows)
    return 2 if any(each.problem for each in found) else 0
