"""The old spelling: `python -m terminalbench.experiments run|analyze|kill ...` is `tbench run|analyze|kill ...`."""

import sys

from terminalbench.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], prog_name="python -m terminalbench.experiments"))
