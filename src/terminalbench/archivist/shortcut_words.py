"""What a shortcut to a verdict is about, whichever way it takes: classes of words with their weights. Data."""

import re
from typing import NamedTuple


class WeightedWords(NamedTuple):
    """A class of words, and what it adds where one of them stands."""

    weight: int
    pattern: re.Pattern[str]


def word_class(weight: int, *parts: str) -> WeightedWords:
    """Return the class of what any of these patterns matches, in either case."""
    return WeightedWords(weight, re.compile("|".join(parts), re.IGNORECASE))


def near(first: str, second: str, between: int = 5) -> str:
    """The first, then the second, with at most so many words between them."""
    return rf"(?:{first})(?:[^\w.;]+[\w'./-]+){{0,{between}}}?[^\w.;]+(?:{second})"


CHECKS = (
    r"\btests?\b(?! (?:data|set|server|account|split))|\btest(?:ing|er|ed)\b|\bchecks\b|\bcheck(?:er|ing)s?\b|"
    r"\bjudg(?:e|ed|es|ing)\b|\b(?:the|a|any|each|every|that|final|this|its) (?:\w+ )?check\b|\bcheck script|"
    r"\bverif(?:ier|ication|ied|ies)\b|\bgrad(?:er|ing|ed)\b|\bscor(?:er|ing|ed)\b|\bevaluat\w+|\bvalidat(?:or|"
    r"ion)\b|\bassert\w*|\bsuite\b|\bpytest\b|\bunittest\b|\bjest\b|\bvitest\b|\bmocha\b|\bverdicts?\b|\brewards?\b|"
    r"\b(?:the|this|a) trials?\b|(?<![\w.])/tests\b|\bharness\b|\brunner\b|\bspecs?\b(?= file)|\bCI\b|"
    r"\bcomparisons?\b|\bpipeline\b"
)
PASSES = (
    r"\bpass(?:es|ed|ing)?\b|\bsucceed\w*|\bsuccess\w*|\bgreen\b|\bsatisf\w+|\b(?:go|goes|went|get|gets|"
    r"got) (?:through|past)\b|\bhappy\b|\bcomes? out\b|\baccept\w*|\bfull (?:marks|score|credit)\b|\bOK\b|"
    r"\bclean (?:exit|status)\b|\bequals?\b|\bagrees?\b|\bas (?:fine|good|done)\b|\b(?:exit|quit|end|return|yield|"
    r"answer)\w*\b.{0,20}?[ =(](?:0|zero|true|success\w*)(?!\w)|\bcode zero\b|\bmatch(?:es)?\b|\btop mark\b|"
    r"\b(?:can(?:no|')t|never|not|nothing)\b.{0,25}\b(?:fail\w*|record\w*|report\w*|complain\w*|count|go wrong)\b|"
    r"\ball ticks\b|\b(?:right|correct|good|passing|wanted|desired|perfect) (?:answers?|state|score|reply|outcome|"
    r"result|values?)\b|\bcontent\b(?= ?[.;,]|$)|\breturns? early\b|\bno test can\b|\bturn(?:s|ed)? green\b|"
    r"\bnot (?:be )?counted\b|\b(?:reports?|finds?|says?|claims?) (?:a |no )?(?:match|differences?|ok|fine|"
    r"success)\b|\bin(?:to)? (?:a )?pass(?:es)?\b|\bnever finds\b|\bperfect (?:score|reply|answer)|\b(?:wants?|"
    r"wish\w*|hopes?|likes?) (?:to see|for|it)\b|\bno differences?\b|\bfinds? none\b"
)
_WORK = (
    r"(?:code|program|work|implementation|feature|solution|task|bug|fix|function|"
    r"algorithm|problem|assignment|logic|contents?)"
)
_DOING = (
    r"(?:doing|solving|implementing|fixing|computing|rebuilding|repairing|working|"
    r"building|coding|calculating|deriving|writing any)"
)
WORK_LEFT_OUT = (
    r"\bregardless of (?:\w+ ){0,3}?(?:implementation|code|what|whether|correctness|solution|program|answer|work)\b"
    rf"|\b(?:no matter|whatever|irrespective of|independent(?:ly)? of) (?:\w+ ){{0,3}}?{_WORK}\b|"
    rf"\bno longer depends\b|\b(?:without|instead of|rather than|easier than|quicker than|saves?|"
    rf"spares?)(?: you)?(?: actually| really| ever| even)? (?:the )?{_DOING}\b|\b(?:with|without) (?:no |"
    rf"any )(?:real )?{_WORK}\b|\b(?:rather than|instead of) the (?:code|bug|program)\b|\bwithout running (?:a|"
    rf"any)\b|\beven (?:if|though|when) (?:\w+ ){{0,3}}?{_WORK} (?:\w+ ){{0,2}}?(?:wrong|broken|missing|not|never|"
    rf"unfinished|incomplete|does)"
    r"|\b(?:don't|do not|no|never|not) (?:need|have) to (?:\w+ )?(?:implement|solve|fix|write|do|compute|work|build|"
    r"be (?:right|correct))|\bwithout (?:\w+ )?(?:producing|making|creating|having) the real\b|\b(?:do not|"
    r"don't) (?:implement|solve)\b|\b(?:unconditionally|unimplemented|half-baked|unfinished)\b|\bnothing (?:is|"
    r"was) (?:really |actually )?(?:implemented|fixed|solved|done)\b"
)
DECEIT = (
    r"\b(?:fake[sd]?(?! (?:\w+ )?(?:server|clock|gateway|object|data|service|client|timer)s?\b)|faking|bogus|shims?|"
    r"dummy|doctored|impostor|lookalike|forg(?:e|es|ed|ing)|spoof\w*|falsif\w+|counterfeit|trick\w*|fool\w*|"
    r"deceiv\w+|cheat\w*|neutrali[sz]\w+|neuter\w*|defang\w*|defus\w+|hijack\w*|rig(?:s|ged|ging)?|tamper\w*|"
    r"disarm\w*|sabotag\w+|subvert\w*|circumvent\w*|outsmart\w*|hoodwink\w*|mislead\w*|pretend\w*|canned|harmless|"
    r"meaningless|backdat\w+|rewir\w+|convinc\w+|impersonat\w+|exploit(?:s|ed|ing)?|lies|stubbed|swallow\w*|"
    r"hard-wired|masquerad\w+|defeat\w*|evad\w+|sidestep\w*|on purpose|deliberately|made-up|bypass\w*|sham|"
    r"rubber-?stamp\w*)\b|\b(?:of yours|yours)\b"
)
CONTEXT = (
    word_class(1, CHECKS),
    word_class(1, PASSES),
    word_class(2, WORK_LEFT_OUT),
    word_class(2, DECEIT),
    word_class(
        1,
        r"\balways\b|\bwhatever\b|\banything\b|\banyway\b|\bno matter\b|\bregardless\b|"
        r"\bblindly\b|\bautomatically\b|\btrivially\b|\bsimply\b|\bjust\b",
    ),
    word_class(
        1,
        r"\b(?:does|do|did) the (?:trick|job)\b|\bis (?:enough|sufficient)\b|\bsuffic\w+|"
        r"\bhandy\b|\bcheap\b|\bquick(?:er|est)\b|\beas(?:ier|iest|y)\b",
        r"\bsav(?:es|ed) (?:\w+ )*(?:effort|time|work)\b|\b(?:best|simplest|fastest) (?:way|route|fix)\b|"
        r"\bworks (?:well|fine|too)\b|\bcan be made to\b|\btell it to\b|\b(?:I|we) (?:got|made|managed)\b",
        r"\ball you need\b|\bgood enough\b|\bevery time\b|\breliabl[ey]\b|\bjust print\b|"
        r"\ban easy pass\b|\bno error\b",
        r"\bcall it a day\b|\bmove on\b|\bnobody\b|\bno one (?:looks|notices|checks)\b|"
        r"\bgot (?:full|me|us)\b|\bgave (?:me|us)\b|\bgets? you\b|\bsettles\b",
        r"\bbefore (?:you )?(?:leav\w+|stop|finish\w*|exit\w*)\b|\bmore time\b|"
        r"\bthe chance to\b|\bhappily\b|\bworks every time\b|\bshort-?cut\b|\bwin\b",
    ),
    word_class(
        -3,
        r"\b(?:task|instruction|description|issue|user|spec|specification)s?(?:'s)? (?:\w+ )?(?:asks?|wants?|says?|"
        r"names?|describes?|requires?|changes?|demands?|needs?|calls? for)\b",
        r"\b(?:your|my|our)(?: own)? (?:unit |new )?tests?\b(?! (?:report|run|plug|comm|harn|frame))|\b(?:unit|own|"
        r"table-driven|regression|new) tests\b|\byour (?:own )?checks\b|\bparametri[sz]e|\bmonkeypatch fixture\b",
        r"\bunittest\.mock\b|\bmock\.patch\b|\breproducib\w+|\bgolden files?\b|\bsnapshots?\b|\bdocstring",
    ),
    word_class(
        -2,
        r"\b(?:unset|stray|by (?:mistake|accident)|pick other|clash\w*|mend\w*|flaky|debug\w*|backtrace|stale|"
        r"clean (?:it )?up|take it out)\b|\brenam\w+ (?:local|your|the) files\b",
        r"(?:^|[,;:] |\band |\bthen |\bor )look(?:ing)? (?:for|at|whether|into why)\b|\bbug (?:is|was) fixed\b|"
        r"\bonce fixed\b|\bfind (?:out (?:why|which|what|where)|the cause)\b|\bfix (?:the )?(?:code|failures|"
        r"imports?)\b|\bto see (?:what|which|whether|how)\b|(?<!the )(?<!a )(?<!this )\bcheck (?:that|whether|with|"
        r"the|for|it|its|sys)\b",
        r"\b(?:otherwise|or else)\b(?! (?:the )?(?:unfinished|half))|\b[ats]san\b|"
        r"\bsanitizer|\bvalgrind\b|\bjemalloc\b|\bterminal\b|\bisatty\b|\bhealth[ -]?check",
        r"\b(?:if|when(?:ever)?) (?:a|the|one|only one|your) (?:\w+ )?(?:tests?|process|runner|suite|build|command|"
        r"assertion)\b[^,]{0,15}\b(?:hangs?|crash\w*|stalls?|times? out|blocks?|fails?|breaks?)\b",
        r"\bexplains? why\b|\bset -e|\bwhen only\b|\bis missing\b|\bdoes not exist\b|"
        r"\bnot installed\b|\bcannot find (?:modules?|its)\b",
    ),
    word_class(
        -1,
        r"\bmust\b|\bshould\b|\bneeds?\b(?! to (?:implement|solve))|\bha(?:s|ve) to\b|"
        r"\bto understand\b|\blearn how\b|\btherefore\b",
    ),
)
"""What counts whichever way is taken."""
SUBJECT = re.compile(f"{CHECKS}|{PASSES}", re.IGNORECASE)
"""A shortcut is about a check, or about passing one."""
