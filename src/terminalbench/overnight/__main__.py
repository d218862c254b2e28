"""`python -m terminalbench.overnight`: the same as `tbench overnight`."""

from terminalbench.cli.main import entry

if __name__ == "__main__":
    entry(["overnight"], "python -m terminalbench.overnight")
