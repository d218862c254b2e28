#!/bin/bash
# prune.sh BASE [FIX...]: /app stands at BASE, and git holds nothing but BASE and what came before it.
# It fails, and with it the build, unless that is proven: everything stored is reachable, and no FIX can be read.
set -eu
app=/app second=/opt/swebench
# In a file: the git that a clone starts is told nothing of `-c`, and in an image /app may be anybody's.
export GIT_CONFIG_GLOBAL=/tmp/prune.gitconfig GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 GIT_NO_REPLACE_OBJECTS=1
trap 'rm -f "$GIT_CONFIG_GLOBAL"' EXIT
printf '[safe]\n\tdirectory = *\n' > "$GIT_CONFIG_GLOBAL"
git() { command git -c gc.auto=0 -c core.hooksPath=/dev/null "$@"; }
cd "$app"
base=$(git rev-parse --verify "$1^{commit}")
shift
dir=$(git rev-parse --absolute-git-dir)

git bisect reset > /dev/null 2>&1 || true
git reset -q --hard "$base"
git checkout -q --detach "$base"

# Files that the build of the image left untracked are no work of an agent: they are kept, and out of its patch.
git ls-files -z --others --exclude-standard --directory | while IFS= read -r -d '' path; do
    printf '/%s\n' "$(printf '%s' "$path" | sed 's/[][*?!#\\ ]/\\&/g')"
done > /tmp/untracked
mkdir -p "$dir/info" && cat /tmp/untracked >> "$dir/info/exclude" && rm /tmp/untracked

for remote in $(git remote); do git remote remove "$remote"; done
git for-each-ref --format='delete %(refname)' | git update-ref --no-deref --stdin
for worktree in "$dir"/worktrees/*; do [ ! -e "$worktree" ] || rm -rf "$worktree"; done
git update-ref refs/heads/main "$base"
git symbolic-ref HEAD refs/heads/main
git reset -q --hard "$base"
rm -rf "$dir"/logs "$dir"/refs/original "$dir"/{rebase-merge,rebase-apply,sequencer} \
    "$dir"/{FETCH_HEAD,ORIG_HEAD,MERGE_HEAD,AUTO_MERGE,CHERRY_PICK_HEAD,REVERT_HEAD,BISECT_LOG,COMMIT_EDITMSG} \
    "$dir"/info/refs "$dir"/objects/info/{alternates,commit-graph,commit-graphs,packs}
git pack-refs --all --prune
for file in "$dir"/objects/pack/*.keep "$dir"/objects/pack/*.promisor; do [ ! -e "$file" ] || rm -f "$file"; done
git reflog expire --expire=now --expire-unreachable=now --all
git repack -q -a -d -n
git prune --expire=now
rm -rf "$dir"/logs "$dir"/ORIG_HEAD

reachable=$(git rev-list --objects --indexed-objects HEAD | cut -d' ' -f1 | sort -u | wc -l)
stored=$(git cat-file --batch-all-objects --batch-check='%(objectname)' | wc -l)
later=$(git rev-list --all --not "$base" | wc -l)
git diff --quiet --ignore-submodules=all "$base" || { echo "$app does not stand at $base"; exit 2; }
[ "$stored" -eq "$reachable" ] || { echo "$stored objects are stored, $reachable are reachable"; exit 3; }
[ "$later" -eq 0 ] || { echo "$later commits are no ancestors of $base"; exit 3; }
for fix in "$@"; do
    if git cat-file -e "$fix" 2> /dev/null; then echo "the fix can still be read"; exit 4; fi
    if grep -rqF "$fix" "$dir"; then echo "the fix is named in $(grep -rlF "$fix" "$dir" | head -n 3)"; exit 4; fi
done

# A second git folder, outside the tree (hard links, no second copy): the patch of an agent is read through this one.
rm -rf "$second"
git clone -q --bare --local --no-tags "$app" "$second"
git -C "$second" remote remove origin
mkdir -p "$second/info" && cp "$dir/info/exclude" "$second/info/exclude"
echo "pruned: $stored objects stored, $reachable reachable from $base"
