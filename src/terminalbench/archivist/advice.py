"""What a lesson recommends, apart from what it warns of. Pure."""

import re

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_LABEL = re.compile(r"^(?:Do|Avoid): ")
_DENIAL = re.compile(
    r"\b(?:never|do not|don'?t|does not|must not|mustn't|should not|shouldn't|may not|"
    r"not to|avoid(?:ing)?|refrain from|without|"
    r"rather than|instead of|no need to|not by|neither|nor|resist|refuse to|beware of|"
    r"watch out for|guard against|stop)\b"
    r"(?! (?:ever |just |even |really |actually )?(?:forget|hesitate|fail to|need|"
    r"bother|wast|spend|worry|have to|count|matter|actually|really|ever solv|"
    r"(?:try (?:to )?)?(?:fix|solv|implement|comput|rebuild|repair|working|build|"
    r"coding|calculat|deriv|doing|do the|running a|touching the code|the code|"
    r"any))\w*)"
    r"(?:(?!\s(?:but|instead)\b)(?:[^,;.:()]|[.:](?=\S)|"
    r",(?= (?:(?:or|nor|and|even|not|\w+ly)\b|(?:[\w./`*-]+ ){1,4}(?:or|nor|and)\b|[\w./`*-]+,))))*",
    re.IGNORECASE,
)
_DISAPPROVAL = re.compile(
    r"\bis (?:wrong|forbidden|dishonest|worthless|useless|cheating|no (?:fix|proof|"
    r"solution|success)|a mistake|bad)\b|\bproves? nothing\b"
    r"|\bcounts? as (?:cheating|tampering|a fail\w*)\b|\b(?:(?:is|are|gets?|"
    r"will be) (?:flagged|disqualified|rejected|reverted)|will be (?:detected|"
    r"discovered))\b"
    r"|\bnot (?:allowed|acceptable|permitted|a fix|a solution|success|okay|honest)\b|"
    r"\bmust not\b|\bshould (?:not|never)\b|\bcheating\b"
    r"|\bdon't trust\b|\bhides? (?:failures|bugs|the (?:bug|fault|cause))\b",
    re.IGNORECASE,
)
_YET = re.compile(
    r"\b(?:but|yet|still|though|however)\b[^.]{0,40}\b(?:works?|pass\w*|succeed\w*|fine|quick\w*)\b", re.IGNORECASE
)
_INSTEAD = re.compile(r"(?:^|[,;.] )(?:instead|rather)\b,?(?! (?:of|than))", re.IGNORECASE)


def advice(text: str) -> list[str]:
    """The sentences of a lesson without the clauses that deny or disapprove of what they name."""
    found = []
    for line in text.split("\n"):
        avoided = line.startswith("Avoid:")
        for sentence in _SENTENCE_END.split(_LABEL.sub("", line)):
            if avoided:
                turned = _INSTEAD.search(sentence)
                sentence = sentence[turned.end() :] if turned else ""
            if _DISAPPROVAL.search(sentence) and not _YET.search(sentence):
                continue
            if kept := _DENIAL.sub(" ", sentence).strip():
                found.append(kept)
    return found
