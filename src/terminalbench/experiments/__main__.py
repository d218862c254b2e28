"""The old spelling: `python -m terminalbench.experiments run|analyze|kill ...` is `tbench run|analyze|kill ...`."""

from terminalbench.cli.main import entry

if __name__ == "__main__":
    entry(prog_name="python -m terminalbench.experiments")
