#!/bin/bash
# make.sh [DIR]: builds the repository in /app (or DIR) with fixed names and dates: every commit has one hash everywhere.
# As in a real image, main is ahead of the base commit, tags and a remote branch point at the fix, the reflog knows it.
set -eu
umask 022
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
here=$(cd "$(dirname "$0")" && pwd)
app=${1:-/app}
git -c init.defaultBranch=main init -q --object-format=sha1 "$app"
cd "$app"
git config user.name "Ada Example"
git config user.email ada@example.org
git config gc.auto 0
at=1700000000
for step in "$here"/steps/*; do
    at=$((at + 3600))
    if [ -d "$step/tree" ]; then cp -R "$step/tree/." .; fi
    if [ -f "$step/removes" ]; then xargs -r -d '\n' rm -- < "$step/removes"; fi
    git add -A
    GIT_AUTHOR_DATE="$at +0000" GIT_COMMITTER_DATE="$at +0000" git commit -q -F "$step/message"
    case $step in
        */2-base) base=$(git rev-parse HEAD) ;;
        */3-fix) git tag v1.1 && git branch release ;;
    esac
done
GIT_COMMITTER_DATE="$at +0000" git tag -a -m "release" v1.2
git update-ref refs/remotes/origin/main HEAD
git remote add origin https://example.org/tiny.git
git pack-refs --all
git repack -q -a -d
git reset -q --hard "$base"
mkdir -p made && echo "by the build of the image" > made/left.txt
