"""What a control is called: the words by which an arm is known as the control where nobody names it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_WORDS = """
control controls ctrl ctl controlgroup baseline base old original orig holdout placebo sham off false 0 zero no none
null without default standard std regular usual statusquo current existing before previous untreated unexposed
reference ref a kontrolle kontrollgruppe alte altes bisher bisherig ohne kein keine contrôle témoin ancien ancienne
actuel actuelle controllo vecchio vecchia attuale senza controlo controle antiguo antigua viejo vieja antigo antiga
atual kontroll kontrol kontrolli kontrola kontrolna kontrolní stary stará gammal gammel oud oude vanha régi eski
контроль контрольная старый старая старое 对照 对照组 對照組 対照 対照群 コントロール 대조군
"""


def place_of_control(arms: Sequence[str]) -> int | None:
    """Return the place of the only arm whose name is a control's; None where no name says so, or several do.

    The whole name counts, or its first or last word, but no word of two meanings (alt, sin, sans). Of several, one
    that is just "control" is it.

    >>> place_of_control(["Mens E-Mail", "No E-Mail"]), place_of_control(["new_page", "oldPage"])
    (1, 1)
    >>> place_of_control(["blue", "green"]), place_of_control(["old red", "old blue"])
    (None, None)
    """
    words = [_words(arm) for arm in arms]
    known = {*_words(_WORDS)}
    exact = [place for place, parts in enumerate(words) if parts == ["control"]]
    named = [place for place, parts in enumerate(words) if known & {*parts[:1], *parts[-1:], "".join(parts)}]
    matching = exact or named
    return matching[0] if len(matching) == 1 else None


def _words(name: str) -> list[str]:
    """Return the words of a name, in lower case and without accents; "oldPage" has two, "2.0" is one."""
    signs = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
    return re.findall(
        r"[^\W_]+(?:\.\d+)*", "".join(sign for sign in signs if not unicodedata.combining(sign)).casefold()
    )
