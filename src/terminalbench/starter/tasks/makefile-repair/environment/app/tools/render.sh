#!/bin/bash
# render.sh HEADER TEXT: print the header with the text's name, then its lines, numbered.
set -eu
[ $# -eq 2 ] || { echo "usage: render.sh HEADER TEXT" >&2; exit 2; }
name=${2##*/}
sed "s/@NAME@/${name%.txt}/" "$1"
if grep -q '^!error' "$2"; then
    echo "render.sh: error in $2" >&2
    exit 1
fi
awk '{ printf "%3d  %s\n", NR, $0 }' "$2"
