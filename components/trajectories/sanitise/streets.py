"""Streets: postal addresses that are written in full, as English, German and Chinese write them. Half an address stays."""

import re
from collections.abc import Iterator

from . import kinds
from .patterns import Span, compile_pattern, is_word, union

_ENGLISH = (
    rb"\b[0-9]{1,5}[A-Za-z]? (?:[NSEW]\.? )?(?:[A-Z][a-z]{1,20}\.? ){1,3}"
    rb"(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|"
    rb"Court|Ct|Terrace|Place|Square|Crescent|Parkway|Highway)\b"
)
_GERMAN = (
    rb"\b[A-Z](?:[a-z]|\xc3[\x80-\xbf]){2,24}"
    rb"(?:stra(?:ss|\xc3\x9f)e|str\.|weg|platz|allee|gasse) [0-9]{1,4}[a-z]?, ?[0-9]{5} "
)
_GERMAN_LANE = (
    rb"\b(?:Am|An der|An den|Auf dem|Auf der|Im|In der|In den|Zum|Zur|Unter den|Hinter dem|Beim|Vor dem|Alte[rs]?"
    rb"|Neue[rs]?|Gro\xc3\x9fe[rs]?|Kleine[rs]?|Obere[rs]?|Untere[rs]?) "
    rb"[A-Z](?:[a-z\-]|\xc3[\x80-\xbf]){2,24}(?: [A-Z](?:[a-z]|\xc3[\x80-\xbf]){2,24})? [0-9]{1,4}[a-z]?, ?[0-9]{5} "
)
_ROMANCE = (
    rb"\b(?:[Cc]alle|[Cc]arrer|Avenida|Avda\.|Paseo|Plaza|Via|Viale|Piazza|Corso|Rua|Travessa|Largo|Pra\xc3\xa7a) "
    rb"(?:(?:de|del|de la|della|dei|di|da|do|dos|das|la|el|los|las) )?[A-Z](?:[A-Za-z']|\xc3[\x80-\xbf]){1,24}(?: "
    rb"(?:[A-Z]|\xc3[\x80-\x9f])(?:[a-z']|\xc3[\x80-\xbf]){1,24}){0,2},? [0-9]{1,4}[A-Za-z]?, ?[0-9]{4,5}(?:-[0-9]{3})? "
)
_FRENCH = (
    rb"\b[0-9]{1,4}(?: bis| ter)?,? (?:rue|avenue|boulevard|place|chemin|all\xc3\xa9e|impasse|quai|cours|route) "
    rb"(?:(?:de|du|des|de la|d'|de l'|la|le)[ ]?)?(?:[A-Z]|\xc3[\x80-\x9f])(?:[A-Za-z'\-]|\xc3[\x80-\xbf]){1,24}(?: "
    rb"(?:[A-Z]|\xc3[\x80-\x9f])?(?:[a-z'\-]|\xc3[\x80-\xbf]){1,24}){0,3}, ?[0-9]{5} "
)
_DUTCH = (
    rb"\b[A-Z][a-z]{2,24}(?:straat|laan|gracht|plein|kade|dijk|gatan"
    rb"|v\xc3\xa4gen) [0-9]{1,4}[a-z]?, ?[0-9]{3,4} ?[0-9A-Z]{2} "
)
_HAN = rb"(?:[\xe4-\xe9][\x80-\xbf]{2})"
_CHINESE = (
    _HAN + rb"{1,6}(?:\xe7\x9c\x81|\xe5\xb8\x82|\xe5\x8c\xba|\xe5\x8e\xbf)" + _HAN + rb"{1,14}"
    rb"(?:\xe8\xb7\xaf|\xe8\xa1\x97|\xe9\x81\x93|\xe5\xb7\xb7|\xe5\xbc\x84)[0-9]{1,5}(?:\xe5\x8f\xb7|\xe5\xbc\x84)"
)
HINT = (
    rb" (?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|"
    rb"Court|Ct|Terrace|Place|Square|Crescent|Parkway|Highway)\b|"
    rb"(?:stra(?:ss|\xc3\x9f)e|str\.|weg|platz|allee|gasse) [0-9]|[0-9](?:\xe5\x8f\xb7|\xe5\xbc\x84)"
    rb"|[0-9][a-zA-Z]?, ?[0-9]{3,5}|, ?[0-9]{5} "
)

_street = compile_pattern(union((_ENGLISH, _GERMAN, _GERMAN_LANE, _ROMANCE, _FRENCH, _DUTCH, _CHINESE)))
_ENGLISH_END = re.compile(
    rb"\.?(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Flat|#)\.? ?[\w\-]{1,6})?"
    rb"(?:, ?[A-Z][A-Za-z. ]{2,24})?(?:,? [A-Z]{2})?(?:,? (?:[0-9]{5}(?:-[0-9]{4})?|[A-Z]{1,2}[0-9][0-9A-Z]? [0-9][A-Z]{2}))?"
)
_PUBLIC = re.compile(rb"51 Franklin St|59 Temple Place|31 Milk St")
"""Where a foundation lives, as every copy of its licence says."""
_TOWN = re.compile(rb"[A-Z](?:[A-Za-z\-]|\xc3[\x80-\xbf]){2,30}")
_ROOM = re.compile(
    rb"(?:[0-9A-Za-z]{1,5}(?:\xe5\x8f\xb7\xe6\xa5\xbc|\xe6\xa0\x8b|\xe6\xa5\xbc|\xe5\xb1\x82|\xe5\xae\xa4"
    rb"|\xe5\x8d\x95\xe5\x85\x83|\xe5\x8f\xb7)){0,4}"
)


def find(data: bytes) -> Iterator[Span]:
    """House numbers with their streets, and the town that follows."""
    for match in _street.finditer(data):
        start, end = match.start(), match.end()
        if is_word(data, start - 1) or _PUBLIC.match(data, start):
            continue
        for rest in (_ENGLISH_END, _TOWN, _ROOM):
            if found := rest.match(data, end):
                end = max(end, found.end())
        yield Span(start, end, kinds.STREET)
