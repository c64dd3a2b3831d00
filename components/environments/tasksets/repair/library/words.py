"""How the sentences of the library speak of operators and comparisons, and which mistakes are made with them."""

OPERATORS = {"+": "plus", "-": "minus", "*": "times", "//": "floor divided by", "%": "modulo"}
COMPARISONS = {">": "above", "<": "below", ">=": "at least", "<=": "at most", "==": "equal to", "!=": "not equal to"}
_MISTAKEN = {"+": "-|*", "-": "+|*", "*": "+|-", "//": "*|%", "%": "//|+"}
_MISREAD = {">": "<|>=|<=", "<": ">|<=|>=", ">=": ">|<=|<", "<=": "<|>=|>", "==": "!=|>=", "!=": "==|<="}


def op(sign: str) -> str:
    """The operator as a marked place."""
    return f"{{{sign}|op:{_MISTAKEN[sign]}}}"


def cmp(sign: str) -> str:
    """The comparison as a marked place."""
    return f"{{{sign}|cmp:{_MISREAD[sign]}}}"
