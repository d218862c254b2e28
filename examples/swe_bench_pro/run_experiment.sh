#!/usr/bin/env bash
# Runs the experiment that .env describes, or goes on with it, then says why runs failed.
#   examples/swe_bench_pro/run_experiment.sh [further options of the experiment command]
# Another file than .env beside this script: ENV_FILE=path
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
env_file="${ENV_FILE:-$here/.env}"

# KEY=VALUE lines are read, never executed. What the environment sets already stays.
load() {
  local line key value
  while IFS= read -r line || [[ -n "$line" ]]; do
    [[ "$line" =~ ^[[:space:]]*(export[[:space:]]+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]] || continue
    key="${BASH_REMATCH[2]}" value="${BASH_REMATCH[3]%$'\r'}"
    if [[ "$value" =~ ^[[:space:]]*\"([^\"]*)\" || "$value" =~ ^[[:space:]]*\'([^\']*)\' ]]; then
      value="${BASH_REMATCH[1]}"
    else
      [[ "$value" =~ ^[[:space:]]*# ]] && value=""
      value="${value%%[[:space:]]#*}"
      value="${value#"${value%%[![:space:]]*}"}" value="${value%"${value##*[![:space:]]}"}"
    fi
    [[ -n "${!key:-}" ]] || export "$key=$value"
  done <"$1"
}

if [[ -f "$env_file" ]]; then
  echo "settings: $env_file"
  load "$env_file"
elif [[ -z "${PROVIDER:-}" ]]; then
  echo "There is no $env_file. Make it, and fill in what is yours:" >&2
  echo "  cp \"$here/.env.example\" \"$here/.env\"" >&2
  exit 1
fi
: "${PROVIDER:?PROVIDER must be set in $env_file}"
output="${OUTPUT_DIR:-output/swe_bench_pro}"

cd "$root"
if [[ -x .venv/bin/python ]]; then
  python=(.venv/bin/python)
elif command -v uv >/dev/null; then
  python=(uv run python)
else
  python=(python3)
fi
demo=("${python[@]}" -m examples.swe_bench_pro.demo)

run=("${demo[@]}" experiment --provider "$PROVIDER" --arms "${ARMS:-s1_tdd}" --output-dir "$output")
run+=(--max-workers "${MAX_WORKERS:-1}" --log-file "$output/experiment.log")
[[ -z "${MODEL:-}" ]] || run+=(--model "$MODEL")
[[ -z "${BASE_URL:-}" ]] || run+=(--base-url "$BASE_URL")
[[ "${MAX_INSTANCES:-0}" == 0 ]] || run+=(--max-instances "$MAX_INSTANCES")
[[ -z "${LANGUAGE:-}" ]] || run+=(--language "$LANGUAGE")
[[ -z "${INSTANCES:-}" ]] || run+=(--instances "$INSTANCES")
[[ -z "${TASKS:-}" ]] || run+=(--tasks "$TASKS")
[[ -z "${CONTAINER_ENV:-}" ]] || run+=(--container-env "$CONTAINER_ENV")
[[ -z "${TRIAL_TIMEOUT:-}" ]] || run+=(--trial-timeout "$TRIAL_TIMEOUT")
[[ -z "${MAX_COST:-}" ]] || run+=(--max-cost "$MAX_COST")
[[ "${WATCH:-false}" != true ]] || run+=(--watch)
[[ "${EVALUATE:-false}" != true ]] || run+=(--evaluate --eval-max-workers "${EVAL_MAX_WORKERS:-4}")
[[ ! -d "$output/batches" ]] || run+=(--resume)
[[ -z "${LLM_API_KEY:-}" ]] || export LLM_API_KEY # by the environment: arguments are seen by everybody

code=0
"${run[@]}" "$@" || code=$?
if [[ ! -f "$output/results.jsonl" || $code -eq 2 ]]; then
  exit "$code"
fi

echo
"${demo[@]}" analyze-errors --results "$output/results.jsonl" --output-dir "$output"

echo
echo "In $output/:"
echo "  experiment.toml                  what was run"
echo "  batches/                         its batch: trials, logs, index"
echo "  results.jsonl                    one line a run"
echo "  traces/                          what each workflow did"
echo "  artifact_dags/                   its artifacts, and a page of each run (dag.html)"
echo "  predictions/                     patches in the official format"
[[ "${EVALUATE:-false}" != true ]] || echo "  predictions/evaluation/          what the evaluation said of them; charts/"
echo "  final_error_analysis_latest.md   why runs failed"
echo "  experiment.log                   a line a trial"
exit "$code"
