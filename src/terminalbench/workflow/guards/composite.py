"""A guard that asks several and tells everything they object to at once."""

import time
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from terminalbench import registry
from terminalbench.workflow.apart import run_guard
from terminalbench.workflow.guards.result import shown
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult
from terminalbench.workflow.state import signature


class CompositeGuard:
    """All of its `parts` hold. It asks every one, also after a rejection; a fatal result ends it.

    `options` are those of the parts, by name.
    """

    name = "composite"
    options: ClassVar[Mapping[str, type]] = {"parts": list, "options": dict}

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        """Return whether they do."""
        results: list[GuardResult] = []
        for spec in context.options.get("parts", ()):
            guard = registry.resolve("guards", spec)()
            options = context.options.get("options", {}).get(spec, {})
            began = time.monotonic()
            own = msgspec.structs.replace(context, options=options)
            result = await run_guard(spec, guard, artifact, own, None)
            results.append(msgspec.structs.replace(result, duration_sec=time.monotonic() - began))
            if result.fatal:
                break
        bad = [result for result in results if not result.passed]
        feedback = "\n".join(f"{result.guard}: {result.feedback}" for result in bad or results if result.feedback)
        return GuardResult(
            passed=not bad,
            guard=self.name,
            feedback=shown(feedback),
            signature=signature(*(f"{result.guard}: {result.signature}" for result in bad)) if bad else None,
            fatal=any(result.fatal for result in bad),
            back=next((result.back for result in bad if result.back is not None), None),
            parts=tuple(results),
        )
