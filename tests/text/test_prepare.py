"""`bilm prepare`: raw files in many languages and forms to a corpus, through the command."""

import dataclasses
import gzip
import io
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bilm
from bilm.errors import ArgumentError, DataError, OptionsError
from bilm.options.parameters import UnicodeForm
from bilm.runs.settings import with_corpus
from bilm.text import prepare as module
from bilm.text.abbreviations import _WORDS
from bilm.text.markup import html_pieces
from bilm.text.pipeline import ModelSteps, TextPipeline, paragraphs
from bilm.text.settings import Split
from tests.distributed import write_folder
from tests.helpers import ROOT, invoke, python, refuse, run, snapshot, standard_input

GREEK = "Ἐν ἀρχῇ ἦν ὁ λόγος. Τί ἐστιν ἀλήθεια; ἐγώ εἰμι· καὶ ὁ λόγος."
TEI = """<?xml version="1.0"?>
<!DOCTYPE TEI.2 PUBLIC "-//TEI P4//DTD" "tei2.dtd" [<!ENTITY name "Marcus"> <!ENTITY % P SYSTEM "p"> %P;]>
<TEI.2><teiHeader><title>Not this.</title></teiHeader><text><front><p>Nor this.</p></front><body>
<head>De amicitia</head>
<p>Mucius augur<note>Some <note>old</note> augur.</note> multa &name;
&nowhere;narrare <app><lem>solebat</lem><rdg>solet</rdg></app>
de <app><rdg>Gaio</rdg><rdg>Lucio</rdg><rdg>Tito</rdg></app> Laelio &mdash; so<lb break="no"/>cero suo.</p>
<p><choice><sic>memmoriter</sic><corr>memoriter</corr><corr>m</corr></choice><desc>Bird.</desc> et
<expan><choice><orig><abbr>evok</abbr></orig><reg><abbr>evoc</abbr></reg></choice><ex>ato</ex></expan>
<expan><abbr>Aug<am>g</am></abbr><ex>usti</ex></expan> <hi>iu</hi>cunde</p>
<lg><l>Arma virumque cano,</l><l>Troiae qui primus</l></lg></body></text></TEI.2>"""
ALTO = """<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>pixel</Description><Layout>
<Page><TopMargin><TextBlock><TextLine><String CONTENT="7"/></TextLine></TextBlock></TopMargin>
<LeftMargin><String CONTENT="b"/></LeftMargin><BottomMargin><String CONTENT="8"/></BottomMargin>
<TextBlock><TextLine><String CONTENT="Der"/><SP/>
<String CONTENT="Kai" SUBS_TYPE="HypPart1" SUBS_CONTENT="Kaiser"/><HYP CONTENT="-"/></TextLine>
<RightMargin><String CONTENT="a"/></RightMargin>
<TextLine><String CONTENT="ser" SUBS_TYPE="HypPart2" SUBS_CONTENT="Kaiser"/><SP/>
<String CONTENT="kam"/><SP/><String CONTENT="heim"/><HYP CONTENT="-"/></TextLine>
<TextLine><String CONTENT="lich."/><String CONTENT="Mit" SUBS_TYPE="HypPart1"/><HYP CONTENT="-"/></TextLine>
<TextLine><String CONTENT="glied" SUBS_TYPE="HypPart2"/></TextLine></TextBlock>
<TextBlock><TextLine><String CONTENT="Ende"/></TextLine></TextBlock></Page></Layout></alto>"""
PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15">
<Metadata><Creator>Transkribus</Creator></Metadata><Page>
<ReadingOrder><OrderedGroup><RegionRefIndexed index="0" regionRef="a"/></OrderedGroup></ReadingOrder>
<TextRegion type="header"><TextLine><TextEquiv><Unicode>- 7 -</Unicode></TextEquiv></TextLine></TextRegion>
<TextRegion><TextEquiv><Unicode>Nur
hier.</Unicode></TextEquiv></TextRegion>
<TextRegion id="a"><TextLine><Word><TextEquiv><Unicode>Der</Unicode></TextEquiv></Word>
<TextEquiv><PlainText>Der</PlainText><Unicode>Der Kai¬</Unicode></TextEquiv>
<TextEquiv index="1"><Unicode>Dcr</Unicode></TextEquiv></TextLine>
<TextLine><TextEquiv><Unicode/></TextEquiv><TextEquiv><Unicode>ser kam.</Unicode></TextEquiv>
<TextEquiv><Unicode>scr</Unicode></TextEquiv></TextLine>
<TextEquiv><Unicode>Der Kai¬
ser kam.</Unicode></TextEquiv></TextRegion></Page></PcGts>"""
PAGE_OF_REGIONS = """<PcGts><Page><TextRegion type="footer">
<TextRegion type="page-number"/><TextLine><TextEquiv><Unicode>7</Unicode></TextEquiv></TextLine></TextRegion>
<TextRegion><TextLine/><TextEquiv><Unicode>Zuerst.</Unicode></TextEquiv></TextRegion>
<TextRegion id="a"><TextRegion><TextEquiv><Unicode>Der</Unicode></TextEquiv></TextRegion>
<TextLine><TextEquiv><Unicode>Anfang.</Unicode></TextEquiv></TextLine></TextRegion>
<TextRegion><TextRegion><TextLine><TextEquiv><Unicode>Ende.</Unicode></TextEquiv></TextLine></TextRegion>
<TextEquiv><Unicode>Ende.</Unicode></TextEquiv></TextRegion></Page></PcGts>"""
HTML = """<!DOCTYPE html><html><head><title>Not this</title><body><nav><a>Home</a></nav>
<h1>Rain &amp; sun</h1><p><a href="x"><span>It</span></a> <em>r<b>ai</b></em><strong>ned</strong>.<br>
Then the sun<script>var x = "<p>";</script> shone.
<p>Birds sang</p></body></html>"""
WIKI = '<doc id="1" url="u" title="Rain">\nRain\n\nRain is water &amp; falls. It is wet.\n</doc>\n'
CONLLU = (
    "# sent_id = 1\n1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_\n"
    "2\tel\tel\tDET\t_\t_\t3\tdet\t_\t_\n3\tSr.\tsr.\tNOUN\t_\t_\t0\troot\t_\t_\n"
    "3.1\tvino\t_\t_\t_\t_\t_\t_\t_\t_\n\n1\tNo\tno\tINTJ\t_\t_\t0\troot\t_\t_\n"
)
X = "\t_" * 8 + "\n"  # the other columns
JSON = '{"text": "One line. Two.\\nNo stop", "n": 1}\n\n{"text": null}\n'


BLOCKS_OF_TEI = (
    "div div1 ab sp speaker stage list item table row cell epigraph opener closer salute signed dateline "
    "trailer argument byline label figure u s entry sense castList castItem docTitle titlePart"
).split()
INSIDE_HTML = (
    "abbr acronym bdi bdo big cite code data del dfn font ins kbd label mark q s samp small span sub sup "
    "time tt u var"
).split()
NO_TEXT_OF_HTML = "style template noscript svg math select button iframe textarea".split()


class Sample(NamedTuple):
    """A raw text, or files by name, and what `prepare` makes of it."""

    files: str | bytes | dict[str, str | bytes]
    sentences: list[str]
    flags: str = ""
    page: Sequence[str] = ()


SAMPLES = {
    "Greek": Sample(
        {"a/b/c.txt": unicodedata.normalize("NFD", GREEK), "a/.hidden": "No."},
        ["Ἐν ἀρχῇ ἦν ὁ λόγος .", "Τί ἐστιν ἀλήθεια ;", "ἐγώ εἰμι · καὶ ὁ λόγος ."],
        flags="--language grc",
        page=["plain text:", "normal form NFC, language grc"],
    ),
    "Greek as it was": Sample(
        {"c.txt": unicodedata.normalize("NFD", "ὁ λόγος")},
        [unicodedata.normalize("NFD", "ὁ λόγος")],
        flags="--form none",
        page=["normal form none"],
    ),
    "Words in two forms": Sample(
        "é e\u0301\n" * 2,
        ["é e\u0301"] * 2,
        flags="--form none --tokens",
        page=["normal forms: 1; --form NFC"],
    ),
    "Thai": Sample("ประเทศไทย\nเป็นประเทศ", ["ประเทศไทย เป็น ประเทศ"], flags="--language th"),
    "Khmer with its own words": Sample(
        "ខ្ញុំ\u200bទៅ\u200b\u200bសាលា", ["ខ្ញុំ ទៅ សាលា"], flags="--tokens", page=["zero-width spaces 3"]
    ),
    "Quotation marks and brackets in Chinese": Sample(
        "很好！“是的。”他说。（注）《诗》云。",
        ["很好 ！", "“ 是 的 。 ”", "他 说 。", "（ 注 ） 《 诗 》 云 。"],
        flags="--language zh",
    ),
    "Quotation marks in French": Sample(
        '« Venez. » " Oui. " Il part.\n\n« Oui. »\n\n« Non.\xa0» [1] Fin.[2] Ici.\n\nIl dit: « Oui. »',
        [
            *("« Venez . »", '" Oui . "', "Il part .", "« Oui . »", "« Non . »"),
            *("[ 1 ] Fin .", "[ 2 ] Ici .", "Il dit : « Oui . »"),
        ],
        flags="--language fr",
    ),
    "Quotation marks in German": Sample(
        "„Komm.“ »Geh.« Sie ging.", ["„ Komm . “", "» Geh . «", "Sie ging ."], flags="--language deu"
    ),
    "Ancient Greek in small letters": Sample(
        "ἦλθεν ὁ ξένος. ὁ δὲ ἔφη· τί ἐστι; οὐδέν.",
        ["ἦλθεν ὁ ξένος .", "ὁ δὲ ἔφη · τί ἐστι ;", "οὐδέν ."],
        flags="--language grc",
    ),
    "Private characters and subscripts": Sample(
        "d\ue8bfuant lú₂-x² \uf158.", ["d\ue8bfuant lú₂ - x ² \uf158 ."]
    ),
    "Chinese": Sample(
        "我爱北京天安门。今天天气很好，我们去公\n园散步。",
        ["我 爱 北京 天安门 。", "今天 天气 很好 ， 我们 去 公园 散步 。"],
        flags="--language zh",
        page=["2 sentences, 14 tokens"],
    ),
    "Hindi": Sample("भारत एक देश है। यह एशिया में है।", ["भारत एक देश है ।", "यह एशिया में है ।"]),
    "Hebrew": Sample(
        "בְּרֵאשִׁית בָּרָא\u200f אֱלֹהִים.",
        ["בְּרֵאשִׁית בָּרָא אֱלֹהִים ."],
        flags="--language he",
        page=["marks of direction 1"],
    ),
    "Arabic": Sample("هل كتبَ الدرسَ؟ نعم، كتبه.", ["هل كتبَ الدرسَ ؟", "نعم ، كتبه ."]),
    "Persian": Sample("من می\u200cخواهم.", ["من می\u200cخواهم ."]),
    "Vietnamese": Sample("Tôi là sinh viên. Hà Nội.", ["Tôi là sinh viên .", "Hà Nội ."]),
    "German": Sample(
        "\ufeffDr. Maier sah\r\nim Früh\u00ad\r\nling „Straßen\u00adbahnen“.\r\n\r\nU\u200bnd\x00",
        ["Dr . Maier sah im Frühling „ Straßenbahnen “ .", "Und"],
        flags="--language de",
        page=["soft hyphens 2", "zero-width spaces 1", "control characters 1"],
    ),
    "Abbreviations": Sample(
        "Dr. Eck hat z. B. mehr. J. S.\u00a0Bach.\n\nVgl. Abb. 3 und Nr.\n\nAm 9. Mai 1848. Er ging.",
        [
            *("Dr . Eck hat z . B . mehr .", "J . S . Bach .", "Vgl . Abb . 3 und Nr ."),
            *("Am 9 . Mai 1848 .", "Er ging ."),
        ],
        flags="--language DE-at",
    ),
    "Abbreviations in Latin": Sample(
        "M. Tullius Sex. Roscium defendit a. d. V Kal. Mart. Sic erat.",
        ["M . Tullius Sex . Roscium defendit a . d . V Kal . Mart .", "Sic erat ."],
        flags="--language la",
    ),
    "Initials in Dutch": Sample(
        "J. Vos sliep, o.a. Dhr. Bos. A. B.",
        ["J . Vos sliep , o.a . Dhr . Bos .", "A . B ."],
        flags="--language nl",
    ),
    "Abbreviations of no language": Sample("Dr. Maier", ["Dr .", "Maier"]),
    "Divided words": Sample(
        "Ein-\nund the con-\r\nsti\u00ac\n tu=\ntion a\u2010\nnew i\u2e17\nnto of Vig-\n\nolo, "
        "Anglo-\nSaxon 19-\n20 -\nthe end pre-\nand Stoke-\non-Sea.",
        [
            "Ein - und the constitution anew into of Vig -",
            "olo , Anglo - Saxon 19 - 20 - the end pre - and Stoke - on - Sea .",
        ],
        flags="--dehyphenate",
        page=["hyphens at line ends 5"],
    ),
    "Table": Sample(
        "The\tDT\n.\tSENT\n",
        ["The DT .", "SENT"],
        page=["t: most lines seem to be rows of a table; no column is named 'text'; give"],
    ),
    "A column of a table": Sample(
        {
            "a.csv": 'id,note,"by"\r\n1,"It rose, they said.\r\n""So""\r\n\r\nThe\r\nend.",A\r\n\r\n2,,B\r\n',
            "b.tsv": "\n\tnote\tid\n0\tIt is.\t3\n",
            "c.tei": "One, note, two.\n",
            "d.html": "note\n\nIt was, too.\n",
            **{"e.csv": 'note\n"Yes, all."\n', "f.tsv": "note\nOne, a, b.\n", "g.tsv": "id,note\n1,So.\n"},
            "h.csv": "id;note\n1;Yes, so.\n",
        },
        [
            *("It rose , they said .", '" So "', "The end .", "It is ."),
            *(
                "One , note , two .",
                "note",
                "It was , too .",
                "Yes , all .",
                "One , a , b .",
                "So .",
                "Yes , so .",
            ),
        ],
        flags="--field note --heldout 0",
        page=["table: 6 files"],
    ),
    "Table by its name": Sample(
        {"a.csv": "id,note\n"}, ["id , note"], page=["a.csv: most lines seem to be rows of a table"]
    ),
    "Rows of a table with commas": Sample(
        {
            "t": "Id,Text,Note\n" + '1,"Ja.",\n' * 5,
            **{"u": "One, two, three.\n\n" * 4, "v": "One, two.\n" * 5, "w": "Ja;nein;So.\n" * 5},
        },
        [
            *("Id , Text , Note", *['1 , " Ja . " ,'] * 5),
            *(*["One , two , three ."] * 4, *["One , two ."] * 5, *["Ja ; nein ; So ."] * 5),
        ],
        flags="--keep-lines",
        page=["raw/t, ", "raw/w: most lines seem to be rows of a table"],
    ),
    "Verses": Sample(
        "<TEI><text><lg><l>Ich saz ûf eime<lb/> steine</l>\n<l>und dahte</l></lg></text></TEI>",
        ["Ich saz ûf eime steine", "und dahte"],
        flags="--keep-lines",
    ),
    "Tokenised text": Sample(
        "He saw it .\nIt , too , was , well , old .\nMr. X saw",
        ["He saw it .", "It , too , was , well , old .", "Mr . X saw"],
        flags="--keep-lines",
        page=["t: most lines seem to be tokenised; give --tokens to keep lines and words"],
    ),
    "Tokenised Chinese": Sample(
        "雨 下 。\n" * 3, ["雨 下 。"] * 3, page=["t: most lines seem to be tokenised"]
    ),
    "Tags in plain text": Sample("See <b>it</b>", ["See < b > it < / b >"], page=["markup tags; remove"]),
    "Divided words as they are": Sample(
        {"t.html": "<!doctype html><p>The con-<br>stitution"},
        ["The con - stitution"],
        page=["words divided at the ends of lines: 1; --dehyphenate"],
    ),
    "Divided words in TEI": Sample(
        "<TEI><text>&Eacute; con-\n<lb/>stitu-<lb break='no'/>tio 公<pb/>园 "
        "比\n <lb/>較 vir\u00ad\n<lb/>tus ne<pc force='weak'>-</pc><lb break='no'/>mo</text></TEI>",
        ["É constitutio 公园 比較 virtus nemo"],
        flags="--dehyphenate",
    ),
    "Words that go on in TEI": Sample(
        "<TEI><text>con<lb break='no'/>sti<hi>tu-</hi>\n<fw>7</fw> <lb break='no'/>tio no-<lb/>va mem<choice>"
        "\n<sic>o</sic>\n<corr>oo</corr>\n</choice>ria sug<pc>-</pc>\n<lb break='no'/>gestio "
        "tu-<hi>\u00a0</hi><lb break='no'/>tio</text></TEI>",
        ["constitutio no - va memooria suggestio tutio"],
        page=["fw 1", "divided at the ends of lines: 1"],
    ),
    "Latin-1 and UTF-8": Sample(
        {"t": "Où est-il?".encode("latin-1"), "u": "Là."},
        ["Où est - il ?", "Là ."],
        flags="--encoding latin-1",
    ),
    "UTF-8 with a letter beyond ASCII at its beginning alone": Sample(
        "Là.\n\n" + ("One " * 25 + "one.\n\n") * 700,
        ["Là .", *["One " * 25 + "one ."] * 700],
        flags="--encoding latin-1",
    ),
    "Japanese in 7 bits": Sample("雨。".encode("iso2022_jp"), ["雨 。"], flags="--encoding iso2022_jp"),
    "Windows where Latin-1 was said": Sample(
        b"I don\x92t know\x97\xbfno?", ["I don’t know — ¿ no ?"], flags="--encoding latin-1"
    ),
    "Encodings that are read as one with more characters": Sample(
        {
            name: f'<html><meta charset="{name}"><p>'.encode() + text.encode(whole)
            for name, text, whole in [
                *(("ascii", "’", "cp1252"), ("iso-8859-9", "–ğ", "cp1254"), ("shift_jis", "①", "cp932")),
                *(("euc-kr", "똠", "cp949"), ("gb2312", "镕", "gbk"), ("gbk", "€", "gb18030")),
                *(("big5", "裏", "cp950"), ("tis-620", "“ก", "cp874")),
            ]
        },
        ["’", "裏", "똠", "镕", "€", "– ğ", "①", "“ ก"],
    ),
    "ASCII where UTF-16 was said": Sample("One.", ["One ."], flags="--encoding utf-16-le"),
    "UTF-32": Sample("\ufeffOù?".encode("utf-32-be"), ["Où ?"]),
    "UTF-16": Sample("\ufeffOù?\r\n\r\nLà".encode("utf-16-be"), ["Où ?", "Là"]),
    "TEI": Sample(
        {"t.xml": TEI},
        [
            *("De amicitia", "Mucius augur multa Marcus narrare solebat de Gaio Laelio — socero suo ."),
            *("memoriter et evocato Augusti iucunde", "Arma virumque cano , Troiae qui primus"),
        ],
        flags="--language la",
        page=["TEI:", "rdg 3", "note 1,", "teiHeader 1", "front 1", "sic 1", "&nowhere; 1"],
    ),
    "Blocks of TEI": Sample(
        "<TEI><text>" + "".join(f"A<{name}>b</{name}>" for name in BLOCKS_OF_TEI) + "</text></TEI>",
        ["A", "b"] * len(BLOCKS_OF_TEI),
    ),
    "Breaks and readings of TEI": Sample(
        "<TEI><text>a<cb/>b<gb/>c<milestone/>d<addrLine>e </addrLine><choice><facs>f</facs><dipl>g</dipl>"
        "<norm>h</norm></choice> <choice><unclear>i</unclear><unclear>j</unclear></choice></text></TEI>",
        ["a b c d e g i"],
    ),
    "Elements inside a sentence of HTML": Sample(
        "<html><p>" + "".join(f"a<{name}>b</{name}> " for name in INSIDE_HTML),
        [" ".join(["ab"] * len(INSIDE_HTML))],
    ),
    "Elements of HTML that are no text": Sample(
        "<html><p>It was." + "".join(f"<{name}>No.</{name}>" for name in NO_TEXT_OF_HTML), ["It was ."]
    ),
    "XML": Sample(
        '<?xml version="1.0"?><b><v>In <i>the</i></v><v>end</v></b>', ["In the", "end"], page=["other XML"]
    ),
    "XML of words": Sample(
        "<?xml version='1.0'?><b><teiHeader>x</teiHeader><cesHeader>x</cesHeader><footnote>x</footnote>"
        "<fn>x</fn><s><w>I</w><w>do</w><c>. </c></s>"
        "<s><k>A</k><k>b</k></s><k>C</k><k>D</k></b>",
        ["I do .", "Ab", "C", "D"],
        page=["teiHeader 1"],
    ),
    "XML with elements amid text": Sample(
        {"t.xml": "<b><v>In <k>the</k> end</v><v><k>All</k> ends</v><v>x <n><m>Y</m> z</n></v></b>"},
        ["In the end", "All ends", "x", "Y", "z"],
    ),
    "XML in another encoding": Sample({"t.xml": b"<a>\xe9t\xe9</a>"}, ["été"], flags="--encoding latin-1"),
    "XML of Windows": Sample(b"<?xml version='1.0' encoding='iso-8859-1'?><a>\x93\xe9\x94</a>", ["“ é ”"]),
    "XML whose mark decides": Sample(
        b"\xef\xbb\xbf<?xml version='1.0' encoding='iso-8859-1'?><a>\xc3\xa9t\xc3\xa9</a>", ["été"]
    ),
    "XML in UTF-16": Sample("<?xml version='1.0' encoding='utf-16'?><a>été</a>".encode("utf-16"), ["été"]),
    "XML in UTF-8 with a mark": Sample({"t.xml": "\ufeff<a>été</a>"}, ["été"]),
    "ALTO": Sample(
        ALTO, ["Der Kaiser kam heimlich .", "Mitglied", "Ende"], flags="--dehyphenate", page=["TopMargin 1"]
    ),
    "PAGE XML": Sample(
        PAGE,
        ["Nur hier .", "Der Kaiser kam ."],
        flags="--dehyphenate",
        page=["PAGE XML:", "Metadata 1", "ReadingOrder 1", "header 1"],
    ),
    "PAGE XML of regions in regions and of empty lines": Sample(
        {"t.xml": PAGE_OF_REGIONS}, ["Zuerst .", "Der", "Anfang .", "Ende ."], page=["footer 1"]
    ),
    "PAGE XML with an empty line and entities": Sample(
        {
            "t.xml": "<PcGts><Page><TextRegion><TextLine><TextEquiv><Unicode>L&eacute;on vint.</Unicode>"
            "</TextEquiv></TextLine><TextLine/><TextEquiv><Unicode>L&eacute;on vint.</Unicode></TextEquiv>"
            "</TextRegion></Page></PcGts>"
        },
        ["Léon vint ."],
    ),
    "PAGE XML longer than a block": Sample(
        {"t.xml": PAGE_OF_REGIONS.replace('<TextRegion id="a">', "\n" * 70_000 + '<TextRegion id="a">')},
        ["Zuerst .", "Der", "Anfang .", "Ende ."],
    ),
    "HTML": Sample(
        HTML,
        ["Rain & sun", "It rained .", "Then the sun shone .", "Birds sang"],
        page=["HTML:", "script 1", "nav 1", "head 1"],
    ),
    "HTML by its name and beginning": Sample(
        {
            "a.html": "<b>A</b> b",
            "b": "<!-- c --><div><p>C</p>D</div>",
            "c": "<html><head><title>x</title><h1>E</h1>Do<wbr>nau<ruby>東<rt>tō</rt></ruby>",
        },
        ["A b", "C", "D", "E", "Donau 東"],
        page=["head 1", "rt 1"],
    ),
    "XHTML in Latin-1": Sample(
        b'<?xml version="1.0" encoding="latin1"?><html><p>\xe0 la</p></html>', ["à la"], page=["HTML:"]
    ),
    "hOCR": Sample("<html><p><span class='ocrx_word'>A</span><span class='ocrx_word'>b", ["A b"]),
    "HTML with open elements and marks": Sample(
        "<html><p><ruby>漢<rt>かん</ruby>は a <![ foo]> b.<p>Next</g><nav><ruby>x</ruby>y</nav>",
        ["漢 は a b .", "Next"],
        page=["rt 1"],
    ),
    "Elements of TEI that are no text": Sample(
        "<TEI><text><p>It was."
        + "".join(
            f"<{name}>No.</{name}>"
            for name in (
                *("facsimile", "sourceDoc", "standOff", "back", "noteGrp", "figDesc", "del", "surplus"),
                *("wit", "witDetail", "index", "mulu"),
            )
        )
        + "</p></text></TEI>",
        ["It was ."],
    ),
    "Ruby of XML": Sample(
        {
            "t.xml": "<TEI><text>漢<note>a<ruby>b<rt>c</rt></ruby>d</note>字</text></TEI>",
            "u.xml": "<?xml version='1.0'?><a>漢<ruby>字<rt>かん</rt></ruby></a>",
        },
        ["漢字", "漢字"],
        page=["rt 1"],
    ),
    "Markup in another encoding than it says or than is given": Sample(
        {
            "a.html": '<html><meta charset="windows-1251"><p>Привет'.encode("cp1251"),
            "b.html": '<html><meta charset="iso-8859-1"><p>É',
            "c.xml": '<?xml version="1.0" encoding="utf-16"?><a>ö</a>',
            "d.xml": '<?xml version="1.0" encoding="utf-8"?><a>ü</a>'.encode("latin-1"),
            "e.xml": '<?xml version="1.0" encoding="utf8"?><a>ø</a>',
        },
        ["Привет", "É", "ö", "ü", "ø"],
        flags="--encoding latin-1",
        page=["HTML:", "other XML:"],
    ),
    "SubRip": Sample(
        "1\n00:00:01,000 --> 00:00:04,000\n<FONT size=2>{\\an8}<I>We went</I></FONT>\n\n"
        "2\n00:00:05,000 --> 00:00:06,000\nhome. 2\n",
        ["We went home .", "2"],
        flags="--language en",
        page=["subtitles:"],
    ),
    "WebVTT": Sample(
        "WEBVTT\nKind: captions\n\nNOTE no\n\nSTYLE\n::cue {}\n\nREGION\nid:a\n\n"
        "intro\n00:01.000 --> 00:04.000 align:start\n"
        "<v Ann>Was <00:02.000><c>it</c> so?\n\n00:05.000 --> 00:06.000\nIt &lt; 3 &amp; was.\n\nYes.\n",
        ["Was it so ?", "It < 3 & was .", "Yes ."],
    ),
    "SubRip without blank lines": Sample(
        "1\n00:00:01,000 --> 00:00:04,000\nWe went\n2\n00:00:05,000 --> 00:00:06,000\nhome.\n",
        ["We went home ."],
    ),
    "wikiextractor": Sample(
        {"AA/wiki_00": WIKI}, ["Rain", "Rain is water & falls .", "It is wet ."], page=["wikiextractor:"]
    ),
    "JSON lines": Sample(JSON, ["One line .", "Two .", "No stop"], page=["JSON lines:"]),
    "Vertical file": Sample(
        "<doc id='1'>\n" + "The\tDT\n" * 8,
        ["The DT"] * 8,
        page=["most lines seem to be rows of a table"],
    ),
    "JSON of wikiextractor": Sample(
        json.dumps({"id": "1", "revid": "2", "url": "u", "title": "t", "text": "A&amp;B"}), ["A & B"]
    ),
    "Folder with an ending": Sample(
        {"a.html.d/b.xml.d/t": "<<A text\nof Gutenberg."}, ["< < A text of Gutenberg ."], page=["plain text:"]
    ),
    "Numbered fragment": Sample("[1]\nOne.", ["[ 1 ] One ."]),
    "JSON lines, another key": Sample('\ufeff{"body": "A b"}', ["A b"], flags="--field body"),
    "CoNLL-U": Sample(CONLLU, ["del Sr.", "No"], page=["CoNLL-U:"]),
    "CoNLL-U whose sentence ends in a multiword token": Sample(
        f"1\tSay{X}2-3\tdel{X}2\tde{X}3\tel{X}\n1\tNo{X}2\tno{X}", ["Say del", "No no"]
    ),
    "UTF-16 without a mark": Sample(
        {"t": "Où?".encode("utf-16-le"), "u": "Who?".encode("utf-16-le")},
        ["Où ?", "Who ?"],
        flags="--encoding utf-16-le",
    ),
    "HTML in the encoding that is said": Sample(
        b"<html><p>\xe0 la", ["à la"], flags="--encoding latin-1", page=["HTML:"]
    ),
    "HTML in capitals": Sample(b'<HTML><META CHARSET="latin1"><P>\xe0 la', ["à la"]),
    "HTML in lines": Sample("<html><p>One\ntwo", ["One two"]),
    "JSON lines with entities": Sample('{"text": "A &amp; B"}', ["A & amp ; B"]),
    "JSON lines longer than a block": Sample(
        json.dumps({"text": "One two. " * 10_000}), ["One two ."], flags="--unique"
    ),
    "TEI with entities of markup": Sample(
        '<!DOCTYPE TEI [<!ENTITY e "a<hi>b</hi><note>c</note>">]><TEI><text><p>x&e;y</p></text></TEI>',
        ["xaby"],
        page=["note 1"],
    ),
    "TEI with prefixes": Sample(
        {
            "t": "<t:TEI xmlns:t='t'><t:text><t:p>A<t:note>x</t:note></t:p></t:text></t:TEI>",
            "u": "<TEI><text>B<note>y</note></text></TEI>",
        },
        ["A", "B"],
        page=["TEI:", "note 2"],
    ),
    "TEI with abbreviations, words and gaps": Sample(
        "<TEI><text><p><abbr>Dn</abbr> <w>arma</w>que <l>cano</l>Troiae x<gap/>y "
        "<choice><abbr>d</abbr><expan>der</expan></choice> <choice><abbr>Tit.</abbr><expan/></choice> "
        "<choice><sic>a</sic></choice></p></text></TEI>",
        ["Dn arma que cano Troiae x y der Tit . a"],
        page=["left out", "gap 1", "abbr 1"],
    ),
    "Apparatus in an apparatus": Sample(
        "<TEI><text><p><app><lem>a <app><lem>b</lem><rdg>x</rdg></app></lem><rdg>y</rdg></app> c</p></text>"
        "</TEI>",
        ["a b c"],
        page=["rdg 2"],
    ),
    "Soft hyphens in TEI": Sample(
        "<TEI><text><p>vir\u00ad\n    tus</p></text></TEI>", ["virtus"], page=["soft hyphens 1"]
    ),
    "XML with elements amid text in others": Sample(
        {"t.xml": "<b><v>In <k>the</k><n>end</n></v><v><k>A</k><k>B</k></v></b>"},
        ["In", "the", "end", "A", "B"],
    ),
    "Titles in Chinese": Sample(
        "很好！（《诗》云。）“「是的。」”",
        ["很好 ！", "（ 《 诗 》 云 。 ）", "“ 「 是 的 。 」 ”"],
        flags="--language zh",
    ),
    "Straight quotation marks": Sample('Er ging. " Komm. " Ja.', ["Er ging .", '" Komm . "', "Ja ."]),
    "Quotation marks after paragraphs": Sample("Ja.\n\n» Komm.", ["Ja .", "» Komm ."]),
    "Numbers and letters that end sentences": Sample(
        "Es sind 3. Er ging. Sie sah x. Er ging.",
        ["Es sind 3 .", "Er ging .", "Sie sah x .", "Er ging ."],
        flags="--language en",
    ),
    "Days of two digits": Sample(
        "Am 31. Mai 1848.", ["Am 31 . Mai 1848 ."], flags="--language ger", page=["language ger "]
    ),
    "Abbreviations in Norwegian": Sample(
        "Dr. Berg og nr. 3", ["Dr . Berg og nr . 3"], flags="--language nb", page=["language nb "]
    ),
    "Initials in no language": Sample("It was A. Later he left.", ["It was A .", "Later he left ."]),
    "Sentences in NFD": Sample(
        unicodedata.normalize("NFD", "Das ist schön. Er kommt vom Bf. Süd."),
        [*map(partial(unicodedata.normalize, "NFD"), ["Das ist schön .", "Er kommt vom Bf .", "Süd ."])],
        flags="--form none --language de",
    ),
    "Abbreviations in NFD": Sample(
        "Es núm. Tres.",
        [unicodedata.normalize("NFD", "Es núm . Tres .")],
        flags="--form NFD --language es",
    ),
    "Coptic": Sample("ϩⲛ̅. ⲁⲩⲱ", ["ϩⲛ̅ .", "ⲁⲩⲱ"], flags="--language cop"),
    "Text indented by tabs": Sample("\tOne.\n\tTwo.", ["One .", "Two ."]),
    "lines": Sample(
        "Mr. A. Then\nB c.\n",
        ["Mr . A . Then", "B c ."],
        flags="--keep-lines",
        page=["lines as they are, words"],
    ),
    "tokens": Sample(
        "can not  -LRB- a.b\n\nHe saw it .\nIt\u2029, too .\n",
        ["can not -LRB- a.b", "He saw it .", "It , too ."],
        flags="--tokens",
        page=["lines and tokens as"],
    ),
    "gzip": Sample({"t.gz": gzip.compress(b"One. Two.")}, ["One .", "Two ."]),
}


def write(directory, files):
    return write_folder(directory, files if isinstance(files, dict) else {"t": files})


def sentences_of(corpus):
    shards = sorted((corpus / "train").iterdir())
    return [line for shard in shards for line in shard.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_become_sentences(name, tmp_path):
    files, expected, flags, words = SAMPLES[name]
    raw, corpus = write(tmp_path / "raw", files), tmp_path / "corpus"
    before = snapshot(raw)
    page = run("prepare", raw, "--out", corpus, "--heldout", 0, "--min-count", 1, *flags.split())
    assert sentences_of(corpus) == expected
    words = [*words, f"{len(expected)} sentences"]
    text = " ".join(page.split())
    assert [word for word in words if word not in text] == []
    assert text.count("most lines seem") == "".join(words).count("most lines seem")
    vocabulary = (corpus / "vocab.txt").read_text("utf-8").split("\n")
    assert vocabulary[:3] == ["<S>", "</S>", "<UNK>"]
    assert {*vocabulary[3:-1]} == {word for sentence in expected for word in sentence.split()}
    assert snapshot(raw) == before and sorted(os.listdir(tmp_path)) == ["corpus", "raw"]


def test_page_names_the_languages_with_abbreviations():
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    (codes,) = re.findall(r"from ending sentences \(([^)]*)\)", page)
    assert re.findall(r"`(\w+)`", codes) == sorted(_WORDS)


@pytest.mark.parametrize("name", ["Greek", "Greek as it was", "German", "Chinese", "lines", "tokens"])
def test_pipeline_of_the_file_gives_the_same_sentences(name, tmp_path):
    files, expected, flags, _ = SAMPLES[name]
    raw, corpus = write(tmp_path / "raw", files), tmp_path / "corpus"
    own = ("--field", "f", "--encoding", "koi8-r", *flags.split())
    run("prepare", raw, "--out", corpus, "--heldout", 0, *own)
    (text,) = [path for path in raw.rglob("*") if path.is_file() and not path.name.startswith(".")]
    pipeline = TextPipeline.from_file(corpus / "text.json")
    assert (pipeline.field, pipeline.encoding) == ("f", "koi8-r")
    assert [" ".join(words) for words in pipeline.sentences(text.read_bytes().decode())] == expected


NOT_TEXT = {
    "an Office document or a book; `pandoc": b"PK\x03\x04" + b"\n" * 26 + b"[Content_Types].xml",
    "an Office document or a book; `pandoc -t": b"{\\rtf1\\ansi No.}",
    "an archive; unpack it": b"PK\x03\x04" + bytes(26) + b"a.txt",
    "a PDF; `pdftotext FILE`": b"%PDF-1.7\n",
    "a pointer of Git LFS to the file; `git": b"version https://git-lfs.github.com/spec/v1\n",
    "a web archive; extract its pages with": b"WARC/1.0\r\nWARC-Type: conversion\r\n",
    "a dump of a wiki; `wikiextractor FILE`": b'<mediawiki xmlns="http://www.mediawiki.org/">',
}


@pytest.mark.parametrize("what", NOT_TEXT)
def test_files_of_programs_are_refused_or_skipped(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"x": NOT_TEXT[what], "README.md": "No.", "Notice sur t.txt": "Yes.", "a": "", "b": ""}
    raw = write(Path("raw"), files)
    out = tmp_path / "corpus"
    assert f"{raw / 'x'}: is {what}" in refuse("prepare", raw / "x", "--out", out)
    assert not out.exists()
    page = " ".join(run("prepare", raw, "--out", out, "--heldout", 0).split())
    assert f"raw/x: is {what.split('`')[0]}" in page and sentences_of(out) == ["Yes ."]
    assert "raw/README.md: seems to describe the texts, by its name" in page
    assert "raw/a, raw/b: each is empty" in page
    run("prepare", raw / "README.md", raw, "--out", out, "--heldout", 0, "--overwrite")
    assert sentences_of(out) == ["No .", "Yes ."]
    # The same words wherever a text is read.
    assert f"is {what}" in refuse("vocab", "build", "--train-prefix", raw / "x", "--outfile", tmp_path / "v")


def test_markup_is_no_training_text(tmp_path):
    for text, head in (
        *((TEI, "<?xml"), (f"\ufeff{TEI}", "<?xml"), (HTML, "<!DOCTYPE"), (WIKI, "<doc id=")),
        *(("<TEI>a", "<TEI"), ("<html>a", "<html")),
    ):
        write(tmp_path, {"t": text})
        message = refuse("vocab", "build", "--train-prefix", tmp_path / "t", "--outfile", tmp_path / "v")
        assert message.endswith(f"is markup ({head} ...), not sentences; `bilm prepare` makes a corpus of it")


ENTITIES = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(8))
BOMB = f'<!DOCTYPE TEI [<!ENTITY a0 "a">{ENTITIES}]><TEI><text>&a8;</text></TEI>'
REFUSED = {
    "line 3: byte 0xe9 is not UTF-8; give its encoding to `bilm prepare` as --encoding, such as latin-1": (
        b"a\rb\r\n\xe9\n"
    ),
    "line 1: byte 0x81 is not CP1252; give its encoding to `bilm prepare` as --encoding, such as mac-": (
        b'<html><meta charset="latin1">\x81'
    ),
    "t: line 3: the XML is malformed": "<TEI>\n<text>\n</TEI>",
    "t: line 1: the XML is malformed (limit on input amplification": BOMB,
    "line 1: unknown encoding: foo; convert": '<?xml version="1.0" encoding="foo"?><a>x</a>',
    "line 1: multi-byte encodings are": '<?xml version="1.0" encoding="gbk"?><a>x</a>',
    "t: line 2: '[]' is not a JSON object": '{"text": ""}\n[]',
    "t: is METS, a list of the files": "<mets:mets xmlns:mets='m'><a>x</a></mets:mets>",
    "t: is FoLiA; `folia2txt`": "<?xml version='1.0'?><!-- <a><b> --><FoLiA><t>x</t></FoLiA>",
    "invalid token); or --encoding of `bilm prepare` gives": {"t.xml": b"<a>\xe9</a>"},
    "a.csv: line 4: 3 cells, and the first line has 2": {"a.csv": "\nid,text\n1,a\n1,a,b\n"},
    "t: the text that begins aa": "a" * (1 << 21) + "a\n",
    "a.csv: line 2: unexpected end of data": {"a.csv": 'id,text\n1,"a\n'},
    "a.tsv: line 4: a quotation mark is not closed": {"a.tsv": 'id\ttext\n1\t"A\n2\tb\n3\tc"\n'},
    "a.tsv: line 2: '\t' expected after '\"'; a cell that begins": {"a.tsv": 'id\ttext\n1\t"A," b.\n'},
    "b: is binary": {"b": bytes(range(256)) * 99},
    "t: line 1: no 'text' among the keys (body); give that of the text to `bilm prepare`": '{"body": ""}',
    "2 files cannot be read:": {"a": '{"body": ""}', "b": '{"text": 3}', "c": "A."},
    "a.gz: the compressed file is truncated": {"a.gz": gzip.compress(b"A.")[:20], "b": "B."},
    "t: line 1: text is 3, expected a string": '{"text": 3}',
    "t: line 2: '[[[[": '{"text": ""}\n' + "[" * 100_000,
    "t: is JSON, but not one object per line; convert it with `jq": '{\n"text": ""}',
    "is JSON, but not one object per line; convert it with `jq -c . FILE`": '[{"text": ""}]',
    "t: is JSON, but not one object per line": '["One.", "Two."]',
    "or `jq -c .[] FILE`": '{"id": 1,\n"text": ""}',
    "t: line 2: 'x' does not have the ten columns": CONLLU.split("\n")[1] + "\nx\n",
    "t: is binary, or text in UTF-16": b"a\0b\0c\0",
    "t: is empty": " \n",
    "the compressed file is truncated or corrupt": {"t.gz": gzip.compress(b"One.")[:-9]},
    "train on: all that there are (1) are held out; --heldout 0 holds out": "One.",
    "raw/t: most lines seem to be rows of a table": "nr\tsatz\n" + "1\tOne.\n" * 20,
    "no file matches": {".t": "One."},
    "none of the 2 files holds text; the first: ": {"a": "", "b": b"%PDF-"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_texts_are_refused_by_file_and_line(message, tmp_path):
    raw = write(tmp_path / "raw", REFUSED[message])
    assert message in refuse("prepare", raw, "--out", tmp_path / "corpus")
    assert os.listdir(tmp_path) == ["raw"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep-lines", "--tokens"], "--keep-lines: does not go with --tokens"),
        (["--tokens", "--dehyphenate"], "--dehyphenate: does not go with --keep-lines or --tokens"),
        (["--language", "English!"], "--language: 'English!' is not the code of a language"),
        (["--language", "greek"], "--language: 'greek' is not the code of a language, such as en"),
        (["--encoding", "utf-nine"], "--encoding: 'utf-nine' is not an encoding that Python knows"),
        (["--encoding", "idna"], "--encoding: 'idna' is not an encoding that Python knows"),
        (["--heldout", "much"], "'much' is not a share, such as 2% or 0.02"),
        (["--form", "NFX"], "'NFX' is not one of NFC, NFD, NFKC, none"),
        (["--heldout", "200%"], "--heldout: must be below 1, got 2.0"),
    ],
)
def test_flags_are_refused_by_name(flags, message, tmp_path):
    write(tmp_path / "raw", {"t": "One."})
    assert message in refuse("prepare", tmp_path / "raw", "--out", tmp_path / "corpus", *flags, status=2)
    assert message.startswith("'") or os.listdir(tmp_path) == ["raw"]


# --- heldout, duplicates, shards ----------------------------------------------------------------------


def facts_of(corpus):
    return json.loads((corpus / "report.json").read_bytes())


def chapters(n_files=40, n_paragraphs=30):
    return {
        f"{n:02}.txt": "".join(f"Book {n} part {k}. It goes on.\n\n" for k in range(n_paragraphs))
        for n in range(n_files)
    }


def test_file_named_as_standard_input_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("A text.")
    run("prepare", "./-", "--out", "corpus", "--heldout", 0, "--max-size", 4, "--min-count", 1)
    assert (tmp_path / "corpus/train/part-00000.txt").read_text() == "A text .\n"
    assert len((tmp_path / "corpus/vocab.txt").read_text().split()) == 4  # with the three marks


def test_error_passes_between_processes(tmp_path):
    with pytest.raises(DataError) as error:
        bilm.prepare(write(tmp_path / "t", " "), tmp_path / "corpus")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301


def test_whole_files_are_held_out(tmp_path):
    raw = write(tmp_path / "raw", chapters())
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", "10%")
    files = facts_of(tmp_path / "a")["heldout_files"]
    assert len(files) == 4 and files[0] in page
    assert len(bilm.prepare(raw, tmp_path / "b", heldout=0.3).heldout_files) == 12  # 13 are not too many
    names = {os.path.basename(name)[:2] for name in files}
    books = re.findall(r"Book (\d+)", (tmp_path / "a/heldout.txt").read_text())
    assert {f"{int(book):02}" for book in books} == names and len(books) == 4 * 30
    trained = re.findall(r"Book (\d+)", "\n".join(sentences_of(tmp_path / "a")))
    assert not names & {f"{int(book):02}" for book in trained}


def test_text_of_each_kind_is_held_out(tmp_path):
    """Markup has more bytes for the same text."""
    plain = chapters(20)
    tag = "p" * 200
    markup = {f"{name}.xml": f"<a><{tag}>{text}</{tag}></a>" for name, text in plain.items()}
    markup = {name: text.replace("\n\n", f"</{tag}><{tag}>") for name, text in markup.items()}
    one = {"one.html": "<html>" + "".join(f"<p>Page {k}. It ends." for k in range(1000))}
    raw = write(tmp_path / "raw", plain | markup | one)
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", "10%")
    facts = facts_of(tmp_path / "a")
    assert sorted(os.path.splitext(name)[1] for name in facts["heldout_files"]) == [".txt"] * 2 + [".xml"] * 2
    assert facts["n_in_stretches"] == 1 and page.count("stretches of one file") == 1
    text = (tmp_path / "a/heldout.txt").read_text()
    assert text.count("Book") == 4 * 30 and 80 < text.count("Page") < 120
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", "3%", "--overwrite")
    assert "held out    stretches of 41 files" in page


def test_heldout_sentences_are_not_trained_on_if_unique(tmp_path):
    raw = write(tmp_path / "raw", chapters())
    run("prepare", raw, "--out", tmp_path / "a", "--heldout", "10%", "--unique")
    assert "It goes on ." in (tmp_path / "a/heldout.txt").read_text()
    assert "It goes on ." not in sentences_of(tmp_path / "a")


@pytest.mark.parametrize(("n_stretches", "share"), [(2000, 0.05), (1, 0.3)])
def test_stretches_of_one_file_are_held_out(n_stretches, share, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_N_STRETCHES", n_stretches)
    monkeypatch.setattr(module, "_MOST_STRETCH", 300)  # of a large text
    paragraphs = [f"Part {k} begins. Part {k} ends." for k in range(3000)]
    raw = write(tmp_path / "raw", {"t": "\n\n".join(paragraphs)})
    run("prepare", raw, "--out", tmp_path / "a", "--heldout", share)
    heldout = (tmp_path / "a/heldout.txt").read_text().splitlines()
    assert abs(len(heldout) / 6000 - share) < 0.01
    numbers = [int(line.split()[1]) for line in heldout]
    assert numbers[::2] == numbers[1::2], "no paragraph is divided"
    n_runs = sum(after != before + 1 for before, after in zip(numbers[::2], numbers[2::2], strict=False))
    assert n_runs < len(numbers) / 8, "paragraphs are held out with their neighbours"
    assert len(heldout) + len(sentences_of(tmp_path / "a")) == 6000


@pytest.mark.parametrize("are_many", [False, True])
def test_small_files_beside_most_of_the_text_are_not_held_out_as_a_whole(are_many, tmp_path):
    large = chapters(1, 1000)
    n_small = sum(map(len, large.values())) // 19 // 20 if are_many else 1  # many have just the share
    small = {f"preface-{i:03}.txt": f"It begins with {i:03}." for i in range(n_small)}
    raw = write(tmp_path / "raw", large | small)
    run("prepare", raw, "--out", tmp_path / "a", "--heldout", "5%")
    facts = facts_of(tmp_path / "a")
    assert facts["heldout_files"] == [] and facts["n_in_stretches"] == 1 + n_small
    assert 0.04 < facts["heldout"]["n_sentences"] / (2000 + n_small) < 0.06


def test_seed_decides_all(tmp_path):
    raw = write(tmp_path / "raw", chapters())
    corpora = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("prepare", raw, "--out", tmp_path / name, "--seed", seed)
        corpora[name] = snapshot(tmp_path / name)
    assert corpora["a"] == corpora["b"] != corpora["c"]


def test_repeated_sentences_are_counted_or_dropped(tmp_path):
    raw = write(tmp_path / "raw", {"a": "One two. Three.\n\nOne two.", "b": "Three. Four four."})
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", 0)
    assert "2 sentences that occurred before, kept; --unique drops them" in page
    assert len(sentences_of(tmp_path / "a")) == 5
    assert facts_of(tmp_path / "a")["n_words"] == 7  # what occurs once is left out
    page = run("prepare", raw, "--out", tmp_path / "b", "--heldout", 0, "--unique", "--min-count", 1)
    assert sentences_of(tmp_path / "b") == ["One two .", "Three .", "Four four ."]
    assert "2 sentences that occurred before, dropped" in page and "3 sentences, 8 tokens, 6 types" in page


def test_large_text_is_counted_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_TYPES", 3)
    monkeypatch.setattr(module, "_MOST_HASHES", 1)
    raw = write(tmp_path / "raw", {"t": "One two. One two. Three. Three. Four."})
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", 0, "--unique")
    assert "4 sentences, 9 tokens, 1 types at least" in page  # the commonest
    assert "4 words, 44.44% of the training text" in page
    assert sentences_of(tmp_path / "a") == ["One two .", "Three .", "Three .", "Four ."]


def test_shards_have_some_of_every_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SHARD_BYTES", 8000)
    raw = write(tmp_path / "raw", chapters(4, 300))
    run("prepare", raw, "--out", tmp_path / "a")
    shards = sorted((tmp_path / "a/train").iterdir())
    assert len(shards) == 4 and shards[0].name == "part-00000.txt"
    for shard in shards:
        assert {*re.findall(r"Book (\d+)", shard.read_text())} == {"0", "1", "2", "3"}


def test_page_names_unknown_words_and_longest_sentences(tmp_path):
    text = "".join(f"Word{k} is rare here, Word{k} there.\n\n" for k in range(2000)) + "a " * 70
    raw = write(tmp_path / "raw", {"t": text})
    page = run("prepare", raw, "--out", tmp_path / "a", "--heldout", "10%")
    facts = facts_of(tmp_path / "a")
    words = (tmp_path / "a/heldout.txt").read_text().split()
    vocabulary = {*(tmp_path / "a/vocab.txt").read_text().split()}
    share = sum(word not in vocabulary for word in words) / len(words)
    assert facts["unknown_share"] == pytest.approx(share) and f"{share:.2%} of the heldout words" in page
    assert len(facts["unknown"]) == 10 and facts["unknown"][0][0] in page
    name, line = facts["train"]["place"].split(":")
    longest = (tmp_path / "a" / name).read_text().splitlines()[int(line) - 1]
    assert len(longest.split()) == 70 == facts["train"]["longest"]
    assert "warning" not in page
    write(raw, {"u": "a " * 2000, "\x1b\udce9": b"%PDF-"})
    assert "warning" in (page := run("prepare", raw, "--out", tmp_path / "b")) and "--keep-lines" in page
    assert r"\x1b" in page and "\x1b" not in page
    read = sentences_of(tmp_path / "a")
    assert len(facts["examples"]) == 5 and {*facts["examples"]} <= {*read} - {*read[1:5]}  # of the whole text


def test_json_is_the_record_of_the_corpus(tmp_path):
    raw = write(tmp_path / "raw", chapters(3))
    output = run("prepare", raw, "--out", tmp_path / "a", "--json")
    assert json.loads(output) == facts_of(tmp_path / "a")
    told = []
    result = bilm.prepare(raw, tmp_path / "b", callback=lambda *numbers: told.append(numbers))
    n_bytes = sum(path.stat().st_size for path in raw.iterdir())
    assert told[-1] == (n_bytes, n_bytes, 180) and sorted(told) == told
    assert result.train.n_sentences == len(sentences_of(tmp_path / "b"))
    assert result.kinds == {"plain text": 3}
    assert json.loads(json.dumps(result.to_json())) == facts_of(tmp_path / "a")
    marked = bilm.prepare(
        write(tmp_path / "m", {"t": "<S> a </S>\n"}), tmp_path / "c", tokens=True, heldout=0
    )
    assert "contains <S> or </S> 2 times" in marked.warnings[0]


# --- outputs ------------------------------------------------------------------------------------------


def test_only_a_corpus_is_replaced(tmp_path):
    raw, out = write(tmp_path / "raw", chapters(2)), tmp_path / "corpus"
    command = ("prepare", raw, "--out", out)
    run(*command)
    assert refuse(*command) == f"{out}: exists; --overwrite replaces it"
    run(*command, "--overwrite", "--heldout", 0)
    assert (out / "heldout.txt").read_text() == ""
    for name in ("notes.txt", "train/mine.txt", ".DS_Store"):
        (out / name).write_text("mine")
        message = refuse(*command, "--overwrite")
        assert f"{out}: exists and is not a corpus that bilm wrote" in message
        assert ("(it has .DS_Store)" in message) == (name == ".DS_Store")
        assert (out / name).read_text() == "mine"
        (out / name).unlink()
    (out / "text.json").write_text('{"version": 1}')
    assert f"{out}: exists and is not a corpus" in refuse(*command, "--overwrite")


def test_output_that_cannot_be_replaced_is_refused(tmp_path, monkeypatch):
    raw = write(tmp_path / "raw", {"t": "One."})
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    for out in (".", "/proc"):
        assert f"{out}: is the current directory or a mount point" in refuse("prepare", raw, "--out", out)


def test_standard_input_among_the_corpus_is_no_text(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    run("prepare", write(tmp_path / "raw", {"t": "One."}), "--out", corpus, "--heldout", 0)
    before = snapshot(corpus)
    with standard_input(corpus / "train/part-00000.txt"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(open(0, "rb", closefd=False)))  # noqa: SIM115
        with pytest.raises(DataError, match="corpus: standard input is an input and would be lost"):
            bilm.prepare("-", corpus, overwrite=True)
    assert snapshot(corpus) == before


def test_named_pipe_is_a_text_whatever_its_name(tmp_path):
    pipe = tmp_path / "README"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pipe.write_text, "One.")
        run("prepare", pipe, "--out", tmp_path / "corpus", "--heldout", 0)
    assert sentences_of(tmp_path / "corpus") == ["One ."]


def test_corpus_in_a_folder_is_no_text(tmp_path):
    raw = write(tmp_path / "raw", {"t": "One."})
    run("prepare", raw / "t", "--out", raw / "corpus", "--heldout", 0)
    run("prepare", raw, "--out", tmp_path / "corpus", "--heldout", 0)
    assert sentences_of(tmp_path / "corpus") == ["One ."]


def test_long_elements_are_divided(tmp_path):
    text = "The stranger departed. The others followed. " * 2000
    raw = write(tmp_path / "raw", {"t.html": f"<pre>{text}</pre>"})
    run("prepare", raw, "--out", tmp_path / "corpus")
    assert facts_of(tmp_path / "corpus")["heldout"]["n_sentences"] < 800
    *_, after = html_pieces(["<p>" + "a " * (1 << 20), "<p>But <b>not</b> this."], Counter())
    assert after == "But not this."


def test_output_among_the_texts_is_refused(tmp_path, monkeypatch):
    raw = write(tmp_path / "raw", chapters(2))
    before = snapshot(tmp_path)
    message = refuse("prepare", raw, "--out", raw / "corpus")
    assert message == f"{raw / 'corpus'}: is part of {raw}, which is read; give a path outside it"
    assert "raw: is part of" in refuse("prepare", raw, "--out", raw)
    monkeypatch.chdir(raw)
    assert "corpus: is part of ." in refuse("prepare", ".", "--out", "corpus")
    run("prepare", raw / "00.txt", "--out", tmp_path / "corpus", "--heldout", 0)
    text = tmp_path / "corpus/train/part-00000.txt"
    message = refuse("prepare", text, "--out", tmp_path / "corpus", "--overwrite")
    assert "is an input and would be lost" in message
    assert "is an input" in refuse(
        "prepare", text.with_name("p*"), "--out", tmp_path / "corpus", "--overwrite"
    )
    assert {k: data for k, data in snapshot(tmp_path).items() if not k.startswith("corpus")} == before


def test_interruption_leaves_nothing(tmp_path, monkeypatch):
    raw = write(tmp_path / "raw", chapters())

    run("prepare", raw, "--out", tmp_path / "old")
    before = snapshot(tmp_path)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Corpus, "finish", interrupt)
    for out in ("new", "old"):
        assert invoke("prepare", raw, "--out", tmp_path / out, "--overwrite", "--seed", 5).exit_code == 1
        assert snapshot(tmp_path) == before


def test_signal_ends_all_processes_and_leaves_nothing(tmp_path):
    raw = write(tmp_path / "raw", {"t": "The rain falls. It is wet.\n\n" * 400_000})
    command = [sys.executable, "-m", "bilm", "prepare", raw, "--out", tmp_path / "corpus"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not [*tmp_path.glob(".corpus.tmp/new/train/part*")] and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM and "Traceback" not in errors
    assert os.listdir(tmp_path) == ["raw"]


@pytest.mark.slow
def test_processes_give_the_same_corpus(tmp_path):
    """Without TensorFlow, which a process of its own has not loaded."""
    raw = write(tmp_path / "raw", chapters(4, 2000))
    code = """
import sys
from bilm.text import prepare
if int(sys.argv[1]) >= 0:
    prepare._n_processes = lambda: int(sys.argv[1])
    prepare.prepare(sys.argv[2], sys.argv[3])
else:  # a worker of a pool may start no processes
    prepare.background.n_cores = lambda: 2
    prepare.multiprocessing.Pool(1).apply(prepare.prepare, sys.argv[2:])
"""
    for n in (0, 3, -1):
        done = python("-c", code, n, raw, tmp_path / str(n))
        assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path / "0") == snapshot(tmp_path / "3") == snapshot(tmp_path / "-1")


def test_lack_of_processes_is_said(tmp_path):
    raw = write(tmp_path / "raw", {"t": "One."})
    code = """
import os, sys
from bilm.cli import main
from bilm.text import prepare
fork, prepare._n_processes = os.fork, lambda: 2
forks = iter([fork])  # only the first succeeds
def fork_once():
    return next(forks, lambda: os.stat("/none"))()
os.fork = fork_once
main(["prepare", *sys.argv[1:]])
"""
    done = python("-c", code, raw, "--out", tmp_path / "corpus")
    assert done.stderr.splitlines()[-1] == "Error: a process cannot be started: No such file or directory"
    assert done.returncode == 1 and os.listdir(tmp_path) == ["raw"]


def test_train_takes_a_corpus(tmp_path, monkeypatch):
    seen = {}

    def begin(request, *_):
        seen.clear()
        seen.update(request.arguments)
        raise DataError("enough")

    monkeypatch.setattr("bilm.runs.prepare.run", begin)
    raw, corpus = write(tmp_path / "raw", chapters(3)), tmp_path / "corpus"
    run("prepare", raw, "--out", corpus)
    message = f"{corpus}: is a corpus, which `bilm train --corpus {corpus}` takes; its text"
    assert message in refuse("info", corpus)
    command = ("train", "--save-dir", tmp_path / "run")
    (tmp_path / "old").mkdir()
    (tmp_path / "old/checkpoint").touch()
    message = refuse(*command, "--corpus", tmp_path / "old", status=2)
    assert (
        "is not a corpus of bilm prepare, but a run directory, which `bilm test` takes as --model" in message
    )
    for path, reason in ((tmp_path, "it has no text.json"), (tmp_path / "none", "no such directory")):
        message = refuse(*command, "--corpus", path, status=2)
        remedy = "`bilm prepare TEXTS --out CORPUS` makes one"
        assert message == f"{path} is not a corpus: {reason}; {remedy}"
    for flag in ("--train-prefix", "--vocab-file"):
        message = refuse(*command, "--corpus", corpus, flag, raw / "00.txt", status=2)
        assert message == f"--corpus does not go with {flag}"
    for config in ([], ["--config", tmp_path / "run.toml"]):
        (tmp_path / "run.toml").write_text('vocab_file = "other"\nmax_steps = 3\n')
        assert refuse(*command, "--corpus", corpus, *config) == "enough"
        assert seen["corpus"] == str(corpus) and seen.get("max_steps") == (3 if config else None)
        assert seen["vocab_file"] == str(corpus / "vocab.txt")


def test_corpus_is_its_files(tmp_path):
    corpus = tmp_path / "corpus"
    for share, heldout in ((0.3, f"{corpus}/heldout.txt"), (0, None)):
        bilm.prepare([write(tmp_path / "raw", chapters(3))], corpus, heldout=share, overwrite=True)
        own = with_corpus({"corpus": corpus, "seed": 3}, "train")
        assert (own["train_prefix"], own["vocab_file"]) == ((f"{corpus}/train",), f"{corpus}/vocab.txt")
        assert own.get("heldout_prefix") == (heldout and (heldout,)) and own["seed"] == 3
        assert with_corpus(own, "train") == own  # in the workers of a cluster
        other = {"corpus": corpus, "heldout_prefix": ("other.txt",)}
        assert with_corpus(other, "train")["heldout_prefix"] == ("other.txt",)
        assert "vocab_file" not in with_corpus({"corpus": corpus}, "restart")
        assert "vocab_file" in with_corpus({"corpus": corpus, "remap_vocab": True}, "restart")


def test_missing_texts_are_named_together(tmp_path):
    message = refuse("train", "--save-dir", tmp_path / "run", status=2)
    assert message == "give --train-prefix and --vocab-file, or the --corpus of `bilm prepare`"
    message = refuse("restart", "--model", tmp_path, status=2)
    assert message == "give --train-prefix, or the --corpus of `bilm prepare`"


# --- text.json ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x", "is not JSON"),
        ('{"version": 2}', "version: must be at most 1, got 2"),
        ('{"form": "NFX"}', 'form: expected one of NFC, NFD, NFKC, got "NFX"'),
        ('{"language": "?", "form": null}', "language: '?' is not the code of a language"),
    ],
)
def test_damaged_steps_are_refused(content, message, tmp_path):
    (tmp_path / "text.json").write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        TextPipeline.from_file(tmp_path / "text.json")


NASTY = st.text(
    st.sampled_from(
        "aA é́ ก็บคน我北。.!?·;'’»«-\u00ad\u200b\u200d\ufeff\x00\x1c\x85\u2028\u2029\n\r\t\ud800<>😀👍🏽न्"
    )
)


@given(
    st.lists(NASTY),
    st.sampled_from(["en", "fr", "th", "grc", "und"]),
    st.sampled_from([*UnicodeForm, None]),
    st.sampled_from(Split),
)
def test_sentences_are_words_and_do_not_depend_on_other_pieces(pieces, language, form, split):
    pipeline = TextPipeline(language, form, split)
    sentences = pipeline.tokenise(pieces)
    assert sentences == [sentence for piece in pieces for sentence in pipeline.tokenise([piece])]
    for sentence in sentences:
        assert " ".join(sentence.split()) == sentence != ""
        assert sentence.encode().decode() == sentence  # no halves of characters
        assert form is None or all(unicodedata.is_normalized(form.value, word) for word in sentence.split())


@pytest.mark.parametrize(("split", "is_told"), [("sentences", True), ("tokens", False)])
def test_another_icu_is_told_where_it_finds_words(split, is_told, caplog):
    steps = dataclasses.asdict(TextPipeline(split=split, icu="9.1"))
    assert ModelSteps(json.dumps(steps).encode()).require().split == split
    assert ("tokenised by ICU 9.1" in caplog.text) == is_told


def test_steps_are_given_by_name():
    assert TextPipeline("en", "NFC", "sentences") == TextPipeline("en")
    with pytest.raises(OptionsError, match="`split` is 'words', not one of sentences, lines, tokens"):
        TextPipeline("en", split="words")


def test_texts_are_read_as_they_come():
    lines = (f"Line {k} is here. Then" for k in range(20_000))
    sentences = [*itertools.islice(TextPipeline("en").read(lines), 500)]
    assert sentences[:3] == ["Line 0 is here .", "Then Line 1 is here .", "Then Line 2 is here ."]
    assert next(lines)  # not all were read


@pytest.mark.parametrize(
    ("language", "gap", "text", "sentence"),
    [
        ("th", "___", "ฉัน___ทุกวัน", "ฉัน ___ ทุก วัน"),
        ("en", "___", "un___able (___).", "un ___ able ( ___ ) ."),
        ("en", "[MASK]", "a[MASK], [MASK].", "a [MASK] , [MASK] ."),
        ("en", "the", "the other.", "the other ."),
    ],
)
def test_gap_stays_whole(language, gap, text, sentence):
    assert [*TextPipeline(language).sentences(text, gap)] == [sentence.split()]


@pytest.mark.parametrize("gap", ["", " ", "the end"])
def test_gap_of_other_than_one_word_is_refused(gap):
    with pytest.raises(ArgumentError, match=f"`gap` is {gap!r}; it must be one word"):
        [*TextPipeline("en").sentences("He saw the end.", gap)]


def test_long_paragraphs_end_with_sentences():
    lines = [f"Line {k} of a text that has no blank lines." for k in range(500)]
    text = "\n".join(lines)
    pieces = [*paragraphs(lines)]
    assert 5 < len(pieces) < 20 and max(map(len, pieces)) < 2200 and "\n".join(pieces) == text
    (line,) = [" ".join(lines)]
    pieces = [*paragraphs([line])]
    assert len(pieces) > 5 and max(map(len, pieces)) < 2200 and " ".join(pieces) == line
    assert len([*paragraphs(["Das ist ein Satz. " * 2000])]) > 3  # no long word before a full stop
    assert len([*paragraphs(["ሰላም ነው። " * 1000])]) > 3
    assert {piece[0] + piece[-1] for piece in paragraphs(["« Je viens. » " * 1000])} == {"«»"}
    pieces = [*paragraphs(f"verse {k}" for k in range(2000))]
    assert len(pieces) > 1 and max(map(len, pieces)) < 10_000
