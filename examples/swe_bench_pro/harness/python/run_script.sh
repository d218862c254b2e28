#!/bin/bash
set -e
cd /app
export PYTHONDONTWRITEBYTECODE=1
IFS=',' read -r -a wanted <<< "${1:-}"
if [ ${#wanted[@]} -eq 0 ]; then wanted=(tests/test_*.py); fi
python3 - "${wanted[@]}" <<'PY'
import sys
import unittest

sys.path.insert(0, "")


class Lines(unittest.TestResult):
    def say(self, test, status):
        module, _, rest = test.id().partition(".Test")
        name = f"{module.replace('.', '/')}.py::Test{rest.replace('.', '::')}" if rest else test.id()
        print(name, status, flush=True)

    def addSuccess(self, test):
        self.say(test, "PASSED")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say(test, "FAILED")
        print(self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self.say(test, "ERROR")
        print(self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self.say(test, "SKIPPED")


result = Lines()
for file in sys.argv[1:]:
    name = file.removesuffix(".py").replace("/", ".")
    unittest.defaultTestLoader.loadTestsFromName(name).run(result)
sys.exit(not result.wasSuccessful())
PY
