"""A memory beside a results root whose trials were shown its lessons."""

import os
from pathlib import Path

from support.dashboard import Root
from support.results import STAMP
from terminalbench.archivist.entries import LessonChanges
from terminalbench.archivist.memory import add, edit, merge, retire
from terminalbench.archivist.store import memory_of, open_store
from terminalbench.json_files import write_json
from terminalbench.records.lesson import Evidence, Lesson, Utility
from terminalbench.records.trial import Exposure, LessonsDelivery, TaskRef

HOSTILE_TEXT = "<script>document.title='owned'</script> <img src=//evil.example/x onerror=alert(1)>\x1b[2J =1+1"


def make_lessons(root: Path) -> dict[str, str]:
    """The ids of a measured, a hostile, a merged and a retired lesson, by what they are."""
    trial = f"study/0/{STAMP}__p/a__1"
    with open_store(memory_of(root), write=True) as store:
        evidence = [Evidence(trial, [3, 99], "now cat notes"), Evidence("other/7/job/x__1", [2])]
        draft = Lesson(id="", do="Read the notes before you answer.", tags=["notes"], evidence=evidence)
        measured = add(store, draft, by="ann").lesson.id
        edit(store, measured, LessonChanges(utility=Utility(0.051, 0.02, 120)), by="utility", reason="120 trials")
        task = [TaskRef("a", "d", HOSTILE_TEXT)]
        hostile = Lesson(
            id="", do=HOSTILE_TEXT, avoid=HOSTILE_TEXT, tags=["<b>"], source_tasks=task, evidence=[Evidence("../../x")]
        )
        bad = add(store, hostile, by=HOSTILE_TEXT).lesson.id
        other = add(store, Lesson(id="", do="Look at notes first, whatever they say."), by="ann").lesson.id
        merge(store, measured, [other], by="ann", reason="one thing")
        gone = add(store, Lesson(id="", avoid="Deleting the lock file."), by="ann").lesson.id
        retire(store, gone, by="bob", reason="not true")
    return {"measured": measured, "hostile": bad, "merged": other, "retired": gone}


def show(root: Root, name: str, *exposures: Exposure, mode: str = "masked") -> None:
    """Let a trial of profile p of the first batch have been eligible for lessons."""
    folder = root.batch.runs / f"{STAMP}__p" / name
    write_json(folder / "lessons.json", LessonsDelivery(mode, "s1", list(exposures)))
    os.utime(folder / "result.json", (1, 1))  # read again
    root.scan()
