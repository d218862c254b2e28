#!/bin/bash
set -eu
cat > /app/archive-logs.sh <<'SH'
#!/bin/bash
# archive-logs.sh SOURCE TARGET: compress every log in SOURCE into TARGET.
set -u
if [ $# -ne 2 ] || [ -z "$2" ] || [ ! -d "$1" ]; then
    echo "usage: archive-logs.sh SOURCE TARGET (SOURCE is a folder)" >&2
    exit 2
fi
source=$1 target=$2
[[ $source == /* ]] || source=./$source
[[ $target == /* ]] || target=./$target
mkdir -p -- "$target" || exit 2
shopt -s nullglob dotglob
count=0 status=0
for file in "$source"/*.log; do
    [ -f "$file" ] && [ ! -L "$file" ] || continue
    name=${file##*/}
    archive=$target/$name.gz number=0
    while [ -e "$archive" ] || [ -L "$archive" ]; do
        number=$((number + 1))
        archive=$target/$name.$number.gz
    done
    partial=$(mktemp "$target/.partial.XXXXXX") || { status=1; continue; }
    if gzip -c < "$file" > "$partial" && mv -n -- "$partial" "$archive"; then
        chmod --reference="$file" "$archive"
        rm -f -- "$file"
        count=$((count + 1))
    else
        rm -f -- "$partial"
        status=1
    fi
done
echo "archived $count"
exit $status
SH
chmod 755 /app/archive-logs.sh
