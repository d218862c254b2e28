cd /logs/artifacts || exit 1
rm -rf model.patch model.error /tmp/model.index
git() {
    GIT_DIR=/opt/swebench GIT_WORK_TREE=/app GIT_INDEX_FILE=/tmp/model.index GIT_CONFIG_GLOBAL=/dev/null \
        GIT_CONFIG_NOSYSTEM=1 command git -C /app -c safe.directory='*' -c core.bare=false -c core.hooksPath=/dev/null "$@"
}
if [ -f prediction.patch ] && [ ! -L prediction.patch ]; then
    cp prediction.patch model.patch
elif ! { git read-tree @BASE@ && git add -A \
    && git diff --cached --binary --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ @BASE@ > model.patch; } \
    2> model.error; then
    echo "no diff could be made" >> model.error
    rm -f model.patch
fi
