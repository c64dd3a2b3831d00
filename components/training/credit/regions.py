"""The regions of a reply: what is reasoning, what is the form of a call, and what are its tool's name and arguments."""

REGIONS = ("reasoning", "format", "tool_name", "arguments")
"""By number. Text outside of calls is reasoning; whatever a call holds beside name and arguments is its form."""
REASONING, FORMAT, TOOL_NAME, ARGUMENTS = range(len(REGIONS))
