"""What a report says of the judge, and of people who know better."""

from terminalbench.records import Finding, Outcome
from terminalbench.report.model import TrialRef
from terminalbench.report.signals import by_trial, judged


def test_a_persons_word_stands_in_the_judges_place() -> None:
    refs = [TrialRef(0, 0, attempt, Outcome.FAILED, name=f"j/{attempt}") for attempt in (1, 2, 3)]
    findings = [
        Finding("j/1", "judge:root_cause", "v", "root_cause", "gave_up"),
        Finding("j/2", "judge:root_cause", "v", "root_cause", "gave_up"),
        Finding("j/3", "judge:root_cause", "v", "root_cause", None, "not judged: no answer"),
        Finding("j/2", "label:ada", "2026", "root_cause", "too_slow", "it ran out of time"),
        Finding("j/2", "label:ada", "2026", "failure_class", "timeout", "it ran out of time"),
    ]
    groups = {group.what: [ref.name for ref in group.trials] for group in judged(refs, findings)}
    assert groups == {
        "root_cause: gave_up": ["j/1"],
        "root_cause: not judged": ["j/3"],
        "root_cause: too_slow (a person says)": ["j/2"],
    }
    assert by_trial(findings)["j/2"]["failure_class"].value == "timeout"
