cd /logs/artifacts || exit 1
rm -rf model.patch model.error /tmp/model.index
git() {
    GIT_DIR=/opt/swebench GIT_WORK_TREE=/app GIT_INDEX_FILE=/tmp/model.index GIT_CONFIG_GLOBAL=/dev/null \
        GIT_CONFIG_NOSYSTEM=1 command git -C /app -c safe.directory='*' -c core.bare=false -c core.hooksPath=/dev/null "$@"
}
made() {
    git read-tree @BASE@ || return
    # Submodules are repositories of their own, whose git folders may be gone: no patch is about them.
    links=$(git ls-files -s | sed -n 's/^160000 [0-9a-f]* [0-9]\t//p')
    set -- .
    IFS='
'
    for link in $links; do set -- "$@" ":(exclude,literal)$link"; done
    unset IFS
    git add -A -- "$@" || return
    git diff --cached --binary --no-color --no-ext-diff --no-textconv --ignore-submodules=all \
        --src-prefix=a/ --dst-prefix=b/ @BASE@ > model.patch
}
if [ -f prediction.patch ] && [ ! -L prediction.patch ]; then
    cp prediction.patch model.patch
elif ! made 2> model.error; then
    echo "no diff could be made" >> model.error
    rm -f model.patch
fi
