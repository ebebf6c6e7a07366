"""The shell side of an SSH machine: what runs there, in sh with GNU find, tar, dd and coreutils.

Variables named "given" are set in front of a text (`process_job.script`).
"""

ABSENT = 44  # exit code: there is no such file

# Given: path, offset, limit.
READ = r"""
[ -e "$path" ] || exit 44
dd if="$path" bs=65536 iflag=skip_bytes,count_bytes,fullblock skip="$offset" count="$limit" \
    status=none && exit
[ -e "$path" ] || exit 44
exit 1
"""

# Given: path. A line that says what it is, then the file itself, or a tar of what a tree carries.
GET = r"""
set -eu
[ -e "$path" ] || exit 44
if [ ! -d "$path" ]; then
    echo file
    exec cat -- "$path"
fi
echo tree
cd -- "$path"
export top="$(pwd -P)"
{
    find . -type f -print0
    find . -type l -exec sh -c '
        for link do
            real=$(readlink -f -- "$link") && [ -f "$real" ] || continue
            case $real in "${top%/}"/*) ;; *) printf "%s\0" "$link" ;; esac
        done' sh {} +
} | tar -chf - --hard-dereference --no-recursion --null -T -
"""

# Given: path, kind (file or tree). stdin: a tar whose last member is ``end``, so a cut-off
# transfer is noticed, with the file or directory as ``content``.
PUT = r"""
set -eu
parent=$(dirname -- "$path")
mkdir -p -- "$parent"
stage=$parent/.put-$$
rm -rf -- "$stage"
mkdir -m 700 -- "$stage"
trap 'rm -rf -- "$stage"' EXIT
tar -xomf - -C "$stage"
[ -e "$stage/end" ]
if [ "$kind" = file ]; then
    mv -fT -- "$stage/content" "$path"
else
    mkdir -p -- "$path" "$stage/content"
    export path
    cd -- "$stage/content"
    find . -type f -exec sh -c '
        for file do
            mkdir -p -- "$path/${file%/*}"
            mv -fT -- "$file" "$path/$file" || exit
        done' sh {} +
fi
"""

# Given: path.
LIST = r"""
[ -d "$path" ] || exit 0
find "$path/" -type f -printf '%s %P\0' 2>/dev/null || :
"""

# Given: path.
REMOVE = 'rm -rf -- "$path"\n'

# Given: the paths as arguments, at_N and inode_N for each, interval, limit, ticks (idle rounds
# between signs of life), once (one look, no more). Prints a line ``.`` for a sign of life and
# ``N OFFSET INODE BASE64`` for new bytes. It ends when nobody reads it any more.
FOLLOW = r"""
quiet=$ticks
while :; do
    new=
    found=$(stat -L -c '%i %s %n' -- "$@" 2>/dev/null)
    if [ "$found" != "${before-}" ] || [ -n "${more-}" ]; then
        before=$found more=
        while read -r inode size name; do
            [ -n "$inode" ] || continue
            n=0
            for path do
                n=$((n + 1))
                [ "$path" != "$name" ] || break
            done
            eval "at=\$at_$n was=\${inode_$n:-$inode}"
            if [ "$size" -lt "$at" ] || [ "$inode" != "$was" ]; then at=0; fi
            count=$((size - at))
            if [ $count -gt "$limit" ]; then count=$limit more=yes; fi
            if [ $count -gt 0 ]; then
                printf '%s %s %s ' $n "$at" "$inode" || exit
                dd if="$name" bs=65536 iflag=skip_bytes,count_bytes,fullblock skip="$at" \
                    count=$count status=none | base64 -w 0
                echo || exit
                new=yes
            fi
            eval "at_$n=$((at + count)) inode_$n=$inode"
        done <<FOUND
$found
FOUND
    fi
    [ -z "$once" ] || exit 0
    if [ -n "$new" ]; then quiet=0; continue; fi
    quiet=$((quiet + 1))
    if [ $quiet -ge "$ticks" ]; then
        echo . || exit
        quiet=0
    fi
    sleep "$interval"
done
"""
