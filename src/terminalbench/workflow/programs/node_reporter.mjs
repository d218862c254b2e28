// A reporter of node:test: one line of JSON per test that ended, and what the tests printed, for us to read.
function place(stack) {
  const root = process.cwd() + "/";
  for (const line of stack.split("\n")) {
    const at = line.indexOf(root);
    if (line.trimStart().startsWith("at ") && at >= 0 && !line.includes("/node_modules/")) {
      return line.slice(at + root.length).replace(/(:\d+){1,2}\)?$/, "");
    }
  }
  return "";
}

export default async function* report(source) {
  for await (const event of source) {
    const data = event.data ?? {};
    if (event.type === "test:stdout" || event.type === "test:stderr") {
      yield JSON.stringify({ printed: String(data.message).slice(-4000) }) + "\n";
    }
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    const error = data.details?.error;
    let cause = error;
    for (let depth = 0; depth < 5 && cause?.cause instanceof Error; depth += 1) cause = cause.cause;
    if (cause === error && error?.cause && typeof error.cause === "object") cause = error.cause;
    yield JSON.stringify({
      name: String(data.name),
      nesting: data.nesting ?? 0,
      file: data.file ?? "",
      suite: data.details?.type === "suite",
      passed: event.type === "test:pass",
      skipped: Boolean(data.skip || data.todo),
      failure: error?.failureType ?? "",
      error: cause?.name ?? (error ? typeof cause : ""),
      code: cause?.code ?? "",
      message: String(cause?.message ?? cause ?? "").slice(0, 4000),
      where: place(String(cause?.stack ?? "")),
      exit: error?.exitCode ?? null,
    }) + "\n";
  }
}
