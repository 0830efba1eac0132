"""Abbreviations, whose full stop does not end a sentence, by language.

ICU has lists of its own, but finds them at the end of longer words too: its German ``r.`` joins what follows
*Mutter.* to the sentence.
"""

import re
import unicodedata
from collections.abc import Iterable

# Those that often end a sentence, such as etc., and those that are words too are left out.
_WORDS = {
    "ca": "aprox av ca cf dr dra ed fig gral núm p pàg pàgs prof profa sr sra srs sta",
    "cs": """cca č čl doc dr ing kap mgr např nám obr odst popř prof resp str sv tab tj tzv ul vyd Bc JUDr
        MUDr PhDr RNDr""",
    "da": "a bl ca d dr eks evt f fig fr frk hr jf kap kgl kl nr prof s skt sml st t tlf vedr",
    "de": """a bzgl bzw ca d evtl geb gest ggf h i k kgl n o s u v vgl z zit zzgl Abb Abg Abs Abt Abth Anm
        Aufl Bd Bde Dipl Dr Ew Exc Exz Fam Fl Fr Frhr Hr Hrn Hrsg Ing Jh Kap Kr Mio Mrd Nr Nro Prof Se Sr St
        Str Tab Tel Thlr""",
    "el": "αγ αρ βλ δηλ δρ εκδ κ κα λ μτφ πρβ σελ στρ τηλ χ Καθ",
    "en": """approx c ca cf ch dept ed eds esp est fig figs p pp viz vol vols vs Adm Apr Aug Ave Capt Co Col
        Corp Dec Dr Feb Fr Ft Gen Gov Hon Inc Jan Jr Lt Ltd Maj Messrs Mr Mrs Ms Mt Nov Oct Prof
        Rep Rev Sen Sep Sept Sgt Sr St Ste""",
    "es": """a aprox art c ca cap cf d ed ej fig núm p pp pág págs vol Av Cía Dr Dra Dres Dña Exc Exma Exmo Fr
        Gral Ilma Ilmo Lic Mons Prof Profa Sr Sra Sres Srta Sta Sto Ud Uds Vd Vds""",
    "fi": "dos ent esim fil ks kts maist mm nk ns os prof puh toim tri ts vrt",
    "fr": "av c ca cf chap env ex fig p pp éd Art Dr MM Me Mgr Mlle Mlles Mme Mmes Pr St Ste",
    "hu": "dr id ifj ill kb özv pl prof szt ún vö",
    "it": "a art avv c ca cap cf cfr d dott dr ed es fig ing lett on p pag pagg pp prof sig sigg vol Mons",
    "la": "a cap cf d lib App Cn Id Kal Mam Non Ser Sex Sp Ti Tib",
    "nl": """a b bijv blz ca d dhr dr drs evt fam fig i ing ir jhr l m mevr mr n nl nr o p prof r resp st t v
        vgl vnl w z zgn""",
    "no": "a bl ca d dr eks evt f fig fr frk hr jf kap kgl kl nr prof s skt st t tlf vedr",
    "pl": """al bł doc dr hab in inż kard ks mgr mjr np nr ob ok pl płk prof red str szt św tab
        tj tzn tzw ul ur woj wyd zob""",
    "pt": """a art c ca cap cf d ed ex fig núm p pp pág págs vol Av Dr Dra Drs Eng Exma Exmo Gen Ilma Ilmo Jr
        Pe Prof Profa Sr Sra Srs Srta Sta Sto""",
    "ro": "aprox bd cca cf dl dna dr fig ing lt nr pag prof str",
    "ru": "акад в вв гл гр кв пер проф рис св см ср стр табл ул",
    "sv": "a ca d dr dvs ex fig fr hr jfr k kap kl nr prof s sid sk st t tel v",
    "tr": "bkz cad çev doç dr hz mah örn prof yrd Alb Av Gen",
    "uk": "акад вул гр див ім напр проф рис св ст табл",
}
_ABBREVIATIONS = {
    language: {form for word in words.split() for form in (word, word[0].upper() + word[1:])}
    for language, words in _WORDS.items()
}
_ABBREVIATIONS["nb"] = _ABBREVIATIONS["nn"] = _ABBREVIATIONS["no"]
_ABBREVIATIONS["de"] |= {str(number) for number in range(1, 32)}  # ordinals, as in dates
_TAIL = 40  # characters of a sentence, among which the last word is
_LAST_WORD = re.compile(r"([\w\u0300-\u036f]+)\.[^\S\u2029]*$")


def join_at_abbreviations(sentences: Iterable[str], language: str) -> list[str]:
    """Join each sentence that ends with an abbreviation, or an initial, to the next one.

    Args:
        sentences: sentences of a text, with the white space between them.
        language: code of the language; empty for none, when the sentences stay as they are.
    """
    if not language:
        return [*sentences]
    known = _ABBREVIATIONS.get(language, set())
    joined: list[str] = []
    is_open = False
    for sentence in sentences:
        if is_open:
            joined[-1] += sentence
        else:
            joined.append(sentence)
        last = _LAST_WORD.search(unicodedata.normalize("NFC", sentence[-_TAIL:]))
        is_open = last is not None and (last[1] in known or (len(last[1]) == 1 and last[1].isupper()))
    return joined
