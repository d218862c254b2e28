"""`python -m terminalbench.analytics <runs_dir> ...` is `tbench analyze <runs_dir> ...`."""

from terminalbench.cli.main import entry

if __name__ == "__main__":
    entry(["analyze"], prog_name="python -m terminalbench.analytics")
