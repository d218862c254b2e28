// Print the report of a test runner (jest, vitest, mocha, or lines of our reporter) without the parts that are not needed:
// at most 300 tests, those that did not pass first, each with the beginning of its message.
const fs = require("fs");

const MOST = 300;
const text = fs.readFileSync(process.argv[1], "utf8");
const cut = (value, most) => (typeof value === "string" ? value.slice(0, most) : value);

function chosen(tests, passed) {
  const bad = tests.filter((one) => !passed(one));
  return [...bad, ...tests.filter(passed)].slice(0, MOST).map((one) => [one, Math.max(200, 60000 / Math.max(bad.length, 20))]);
}

function jest(report) {
  const testResults = report.testResults.slice(0, 50).map((file) => ({
    status: file.status,
    message: cut(file.message, 4000),
    assertionResults: chosen(file.assertionResults || [], (one) => one.status === "passed").map(([one, room]) => ({
      fullName: one.fullName,
      title: one.title,
      status: one.status,
      failureMessages: (one.failureMessages || []).slice(0, 1).map((message) => cut(message, room)),
    })),
  }));
  return { testResults };
}

function mocha(report) {
  const fault = (err, room) => err && { name: err.name, code: err.code, message: cut(err.message, room), stack: cut(err.stack, 500) };
  const slim = ([one, room]) => ({
    title: one.title,
    fullTitle: one.fullTitle,
    file: one.file,
    err: one.err && Object.keys(one.err).length ? fault(one.err, room) : {},
  });
  const fine = (one) => !one.err || !Object.keys(one.err).length;
  return {
    tests: chosen(report.tests, fine).map(slim),
    pending: (report.pending || []).slice(0, MOST).map((one) => ({ fullTitle: one.fullTitle })),
    failures: chosen(report.failures || [], () => false).map(slim),
  };
}

const start = text.indexOf('{\n  "stats"');
let report = null;
try {
  report = JSON.parse(start >= 0 ? text.slice(start) : text);
} catch {
  report = null;
}
if (report && Array.isArray(report.testResults)) console.log(JSON.stringify(jest(report)));
else if (report && Array.isArray(report.tests)) console.log(JSON.stringify(mocha(report)));
else {
  const lines = text.split("\n").filter(Boolean);
  const events = lines.map((line) => JSON.parse(line));
  const printed = events.filter((one) => "printed" in one).map((one) => one.printed).join("").slice(-20000);
  if (printed) console.log(JSON.stringify({ printed }));
  for (const [one, room] of chosen(events.filter((each) => "name" in each), (each) => each.passed)) {
    console.log(JSON.stringify({ ...one, message: cut(one.message, room) }));
  }
}
