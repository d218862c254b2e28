// Say which JavaScript and TypeScript files do not parse, as JSON: node --experimental-vm-modules -e PROGRAM FILE...
// With the parser of the repository (Babel, TypeScript) where it is installed, else with Node's own.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

function find(name, file) {
  try {
    return require(require.resolve(name, { paths: [path.resolve(path.dirname(file)), process.cwd()] }));
  } catch {
    return null;
  }
}

function typescript(ts, file, source) {
  const options = { jsx: ts.JsxEmit.Preserve, target: ts.ScriptTarget.Latest, allowJs: true };
  const made = ts.transpileModule(source, { fileName: file, reportDiagnostics: true, compilerOptions: options });
  return (made.diagnostics || []).slice(0, 5).map((one) => ({
    path: file,
    line: one.file ? one.file.getLineAndCharacterOfPosition(one.start || 0).line + 1 : 0,
    message: ts.flattenDiagnosticMessageText(one.messageText, " "),
  }));
}

function babel(parser, file, source) {
  const typed = /\.[cm]?tsx?$/.test(file);
  const plugins = typed ? ["typescript", "decorators-legacy"] : ["flow", "decorators-legacy"];
  if (!/\.[cm]?ts$/.test(file)) plugins.push("jsx");
  try {
    parser.parse(source, { sourceType: "unambiguous", allowReturnOutsideFunction: true, plugins });
    return [];
  } catch (error) {
    const message = String(error.message).replace(/\s*\(\d+:\d+\)$/, "");
    return [{ path: file, line: error.loc ? error.loc.line : 0, message }];
  }
}

function plain(file, source) {
  const text = source.replace(/^#!.*/, "");
  const ways = [];
  if (!file.endsWith(".mjs")) {
    ways.push(() => new vm.Script(`(function (exports, require, module, __filename, __dirname) {${text}\n})`, { filename: file }));
  }
  if (!file.endsWith(".cjs")) ways.push(() => new vm.SourceTextModule(text, { identifier: file }));
  let first = null;
  for (const way of ways) {
    try {
      way();
      return [];
    } catch (error) {
      // A module read as a script says only that it is a module.
      if (first === null || /import|export|await/.test(first.message)) first = error;
    }
  }
  const line = /:(\d+)\n/.exec(String(first.stack));
  return [{ path: file, line: line ? Number(line[1]) : 0, message: `SyntaxError: ${first.message}` }];
}

const flaws = [];
const unchecked = [];
for (const file of process.argv.slice(1)) {
  let source;
  try {
    source = fs.readFileSync(file, "utf8");
  } catch {
    continue; // deleted
  }
  const typed = /\.[cm]?tsx?$/.test(file);
  const ts = find("typescript", file);
  const parser = find("@babel/parser", file);
  if (ts && (typed || !parser)) flaws.push(...typescript(ts, file, source));
  else if (parser) flaws.push(...babel(parser, file, source));
  else if (/\.[cm]?js$/.test(file)) flaws.push(...plain(file, source));
  else if (/\.[cm]?ts$/.test(file) && require("module").stripTypeScriptTypes) {
    try {
      require("module").stripTypeScriptTypes(source);
    } catch (error) {
      flaws.push({ path: file, line: 0, message: String(error.message).split("\n")[0] });
    }
  } else unchecked.push(file);
}
console.log(JSON.stringify({ flaws, unchecked }));
