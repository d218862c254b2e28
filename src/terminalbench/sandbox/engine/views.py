"""What is written in a sandbox, by view: the agent's own, and the one that the verifier gets."""

AGENT, VERIFIER = "agent", "verifier"


def upper(run_dir: str, view: str, number: int) -> str:
    """The folder that takes what is written to the overlay `number` in `view`."""
    return f"{run_dir}/s/{view}{number}"


def work(run_dir: str, view: str, number: int) -> str:
    """The folder in which the kernel prepares what goes there."""
    return f"{run_dir}/s/{view}{number}.work"
