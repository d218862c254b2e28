"""`python -m terminalbench.analytics <runs_dir> ...` is `tbench analyze <runs_dir> ...`."""

import sys

from terminalbench.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["analyze", *sys.argv[1:]], prog_name="python -m terminalbench.analytics"))
