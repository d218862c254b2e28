# Sourced. find_uv prints a uv: that of the PATH, else one of our own, from PyPI by name and hash. It installs several
# times faster than pip, and can get a Python.
hashed="--disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r requirements-uv.lock"

find_uv() {
    if command -v uv; then return 0; fi
    home="${XDG_CACHE_HOME:-$HOME/.cache}/terminalbench/uv-$(cksum <requirements-uv.lock | cut -d' ' -f1)"
    if [ -e "$home" ] && { [ -L "$home" ] || [ ! -O "$home" ]; }; then
        echo "setup: $home is not a folder of this user; set XDG_CACHE_HOME to one" >&2
        return 1
    fi
    if [ ! -x "$home/bin/uv" ]; then
        mkdir -p "${home%/*}" && { [ -d "$home" ] || mkdir -m 700 "$home"; } || return 1
        # By a pip that is there, if one is: to make an environment for it takes longer than to install it.
        # shellcheck disable=SC2086  several options
        { "${python:-python3}" -c 'import pip' 2>/dev/null && PIP_ROOT_USER_ACTION=ignore \
            "${python:-python3}" -m pip install -q --target "$home" $hashed; } >&2 \
            || { python3 -m venv "$home" && "$home/bin/python" -m pip install -q $hashed; } >&2 || return 1
    fi
    echo "$home/bin/uv"
}
