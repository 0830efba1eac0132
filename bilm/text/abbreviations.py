"""Abbreviations, whose full stop does not end a sentence, by language.

ICU has lists of its own, but finds them at the end of longer words too: its German ``r.`` joins what follows
*Mutter.* to the sentence.
"""

import re
from collections.abc import Iterable

# Those that often end a sentence, such as etc., and those that are words too are left out.
_WORDS = {
    "de": """a bzgl bzw ca d evtl geb gest ggf h i n o s u v vgl z zit zzgl Abb Abs Abt Anm Aufl Bd Bde
        Dipl Dr Fam Fr Hr Hrsg Ing Jh Kap Mio Mrd Nr Prof Sr St Str Tab Tel""",
    "en": """approx c ca cf ch dept ed eds esp est fig figs p pp viz vol vols vs Adm Apr Aug Ave Capt Co
        Col Corp Dec Dr Feb Fr Ft Gen Gov Hon Inc Jan Jr Lt Ltd Maj Messrs Mr Mrs Ms Mt Nov Oct Prof Rep
        Rev Sen Sep Sept Sgt Sr St Ste""",
    "es": """a aprox art c ca cap cf d ed ej fig núm p pp pág págs vol Av Cía Dr Dra Dres Dña Exc Exma
        Exmo Fr Gral Ilma Ilmo Lic Mons Prof Profa Sr Sra Sres Srta Sta Sto Ud Uds Vd Vds""",
    "fr": """av c ca cf chap env ex fig p pp éd Art Dr MM Me Mgr Mlle Mlles Mme Mmes Pr St Ste""",
    "it": """a art avv c ca cap cf cfr d dott dr ed es fig ing lett on p pag pagg pp prof sig sigg vol
        Mons""",
    "la": """a cap cf d lib App Cn Id Kal Mam Non Ser Sex Sp Ti Tib""",
    "pt": """a art c ca cap cf d ed ex fig núm p pp pág págs vol Av Dr Dra Drs Eng Exma Exmo Gen Ilma Ilmo
        Jr Pe Prof Profa Sr Sra Srs Srta Sta Sto""",
    "ru": """акад в вв гл гр кв пер проф рис св см ср стр табл ул""",
}
_ABBREVIATIONS = {
    language: {form for word in words.split() for form in (word, word[0].upper() + word[1:])}
    for language, words in _WORDS.items()
}
_ABBREVIATIONS["de"] |= {str(number) for number in range(1, 32)}  # ordinals, as in dates
_LAST_WORD = re.compile(r"(?<!\w)(\w+)\.[^\S\u2029]*$")


def join_at_abbreviations(sentences: Iterable[str], language: str) -> list[str]:
    """Join each sentence that ends with an abbreviation, or an initial, to the next one.

    Args:
        sentences: sentences of a text, with the white space between them.
        language: code of the language; for ``und`` the sentences stay as they are.
    """
    if language == "und":
        return [*sentences]
    known = _ABBREVIATIONS.get(language.partition("-")[0], set())
    joined: list[str] = []
    is_open = False
    for sentence in sentences:
        if is_open:
            joined[-1] += sentence
        else:
            joined.append(sentence)
        last = _LAST_WORD.search(sentence)
        is_open = last is not None and (last[1] in known or (len(last[1]) == 1 and last[1].isupper()))
    return joined
