"""The shell side of the process engine: what runs on the machine, in POSIX sh.

A job is a directory ``.jobs/<id>`` that appears whole, by rename, and holds

========  ==========================================================================================
job.json  the job's record; ``fingerprint`` (of command and files) and ``workspace`` beside it
run.sh    the runner, ``command.sh`` the job's own shell, ``env`` its environment (0600; gone once
          read)
started   ``pid start-time boot-id status-size status-inode gpus``: written once, by the runner,
          before the command starts. Whoever links this file first *is* the job
stop      there is a stop request; holds the time (Unix seconds) until which the job has grace
exit      how it ended, one JSON line
log       stdout and stderr
========  ==========================================================================================

Why no crash starts a job twice: all starts on a root hold one file lock. The runner inherits the
lock and lets go of it only when ``started`` is there, so if the launcher and its shell die in
between, the next launcher waits and then finds it.

Needs: sh, the core utilities, flock and setsid (util-linux), grep, tar.
"""

TOOLS = ("flock", "setsid", "tar", "grep", "stat", "dd", "ln", "sync", "date", "sleep")

# A job's processes: those of the runner's session, and those that left it but still carry the
# marker variable. Its value ends in a slash so that no job's marker begins another's.
MARKER = "TAO_RAY_JOB"

LIBRARY = r"""
read -r boot < /proc/sys/kernel/random/boot_id

# alive PID START BOOT: whether that very process still runs.
alive() {
    [ "$3" = "$boot" ] || return 1
    { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 1
    start=$2
    set -- ${line##*) }
    case $1 in Z | X) return 1 ;; esac
    [ "${20}" = "$start" ]
}

# members JOB [SESSION]: sets `found` to the job's processes, the session's leader left out.
members() {
    listed=$(grep -lsF "TAO_RAY_JOB=$1/" /proc/[0-9]*/environ
             [ -z "${2-}" ] || grep -lsE "\) [^ZX] [0-9]+ [0-9]+ $2 " /proc/[0-9]*/stat)
    found=
    for file in $listed; do
        pid=${file#/proc/}
        pid=${pid%/*}
        case "$found " in *" $pid "*) continue ;; esac  # a signal must come once
        [ "$pid" = "${2-}" ] || [ ! -e "/proc/$pid" ] || found="$found $pid"
    done
}

# settle JOB: if the runner is gone without a word, end what is left of the job and say so.
# Only marked processes: the number of a dead session may belong to others by now.
settle() {
    [ -e "$1/started" ] && [ ! -e "$1/exit" ] || return 0
    read -r pid start at rest < "$1/started"
    if alive "$pid" "$start" "$at"; then return 0; fi
    why="the job's supervising process was killed"
    [ "$at" = "$boot" ] || why="the host was restarted"
    tries=0
    while members "$1" && [ -n "$found" ] && [ $tries -lt 100 ]; do
        kill -s KILL $found 2>/dev/null || :
        tries=$((tries + 1))
        sleep 0.1
    done
    stopped=false
    [ ! -e "$1/stop" ] || stopped=true
    printf '{"code": null, "stopped": %s, "detail": "%s"}\n' $stopped "$why" > "$1/lost.$$"
    ln "$1/lost.$$" "$1/exit" 2>/dev/null || :
    rm -f "$1/lost.$$"
}
"""

# A start, in parts that other engines share: take the job in and hold the lock; count what runs;
# choose GPUs; put the job's directory in its place; start. Given: jobs, id, workspace, gpus
# (wanted), devices, slots. stdin: a tar whose last member is job.json, so a cut-off transfer is
# noticed. Says what came of it in one word.
RECEIVE = r"""
set -eu
job=$jobs/$id
mkdir -p "$jobs"
stage=$jobs/.stage-$$
rm -rf "$stage"
mkdir -m 700 "$stage"
trap 'rm -rf "$stage"' EXIT
tar -xof - -C "$stage"
[ -e "$stage/job.json" ]
exec 9> "$jobs/.lock"
flock -w 60 9 || { echo busy; exit; }

for old in "$jobs"/.stage-*; do  # of launchers that were killed
    grep -qsE '\) [^ZX] ' "/proc/${old##*-}/stat" || rm -rf "$old"
done

if [ -d "$job" ]; then
    read -r had < "$job/fingerprint"
    read -r want < "$stage/fingerprint"
    [ "$had" = "$want" ] || { echo conflict; exit; }
    [ ! -e "$job/started" ] || { echo started; exit; }
fi
"""

COUNT = r"""
running=0 taken=,
[ -z "$slots$devices" ] || for other in "$jobs"/*/; do
    other=${other%/}
    settle "$other"
    [ -e "$other/started" ] && [ ! -e "$other/exit" ] || continue
    read -r pid start at size inode used < "$other/started"
    running=$((running + 1))
    taken=$taken$used,
done
"""

CHOOSE = r"""
if [ -n "$slots" ] && [ $running -ge "$slots" ]; then echo full; exit; fi
chosen= count=0 free=0
for device in $devices; do
    case $taken in *",$device,"*) continue ;; esac
    free=$((free + 1))
    [ $count -lt "$gpus" ] || continue
    chosen=$chosen${chosen:+,}$device
    count=$((count + 1))
done
if [ -n "$devices" ] && [ $count -lt "$gpus" ]; then echo "gpus $free"; exit; fi
"""

PLACE = r"""
if [ ! -d "$job" ]; then
    mkdir -p "$workspace"
    [ ! -d "$stage/files" ] || cp -R "$stage/files/." "$workspace/"
    rm -rf "$stage/files"
    mv "$stage" "$job"
fi
"""

RUN = r"""
setsid -f sh "$job/run.sh" "${chosen:--}" < /dev/null > /dev/null 2>&1
tries=0
while [ ! -e "$job/started" ]; do
    tries=$((tries + 1))
    [ $tries -lt 1000 ] || { echo stuck; exit; }
    sleep 0.01
done
echo started
"""

START = RECEIVE + COUNT + CHOOSE + PLACE + RUN

# Given: job, status. $1: the GPUs this job holds. It outlives a stop request so as to report the
# end (a trap, not "ignore": the job itself must start with default handlers).
RUNNER = r"""
trap : TERM INT HUP
cd "$job" || exit
exec >> log 2>&1
read -r line < "/proc/$$/stat"
set -- "$1" ${line##*) }
start=${21}
size=0 inode=0
if [ -n "$status" ] && [ -f "$status" ]; then
    size=$(stat -L -c %s "$status")
    inode=$(stat -L -c %i "$status")
fi
printf '%64s\n' '' > result.$$  # room for the end's record, even on a disk that fills up
printf '%s\n' "$$ $start $boot $size $inode $1" > started.$$
ln started.$$ started 2>/dev/null || { rm -f started.$$ result.$$; exit; }
rm -f started.$$
exec 9>&-

oom_kills() { grep '^oom_kill ' /proc/vmstat || :; }
before=$(oom_kills)
tao_ray_gpus=$1 TAO_RAY_JOB=$job/ sh ./command.sh
code=$?

# Nothing of a job outlives its main process: it would hold memory and GPUs unseen.
limit=$(($(date +%s) + 5))
signal=TERM
[ ! -e stop ] || { read -r limit < stop; signal=done; }
while members "$job" $$; [ -n "$found" ]; do
    [ "$(date +%s)" -lt "$limit" ] || signal=KILL
    [ $signal = done ] || kill -s $signal $found 2>/dev/null
    [ $signal = KILL ] || signal=done
    sleep 0.1
done
stopped=false oom=false
[ ! -e stop ] || stopped=true
[ $code -ne 137 ] || [ $stopped = true ] || [ "$before" = "$(oom_kills)" ] || oom=true
printf '{"code": %d, "stopped": %s, "oom": %s}\n' $code $stopped $oom |
    dd of=result.$$ conv=notrunc,fsync 2>/dev/null
ln result.$$ exit
rm -f result.$$
sync .
"""

# Given, each with the prefix tao_ray_: job, workspace, activate, hide_gpus. The job's own shell: on
# SIGTERM it waits for the command in progress and begins no other.
COMMAND_HEAD = r"""
trap 'exit $?' TERM
[ ! -e "$tao_ray_job/stop" ] || exit 143
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK MASTER_ADDR MASTER_PORT
unset CUDA_VISIBLE_DEVICES
for tao_ray_name in $(env | grep -oE '^(RAY|TORCHELASTIC)_[A-Za-z0-9_]*'); do
    unset "$tao_ray_name"
done
[ -z "$tao_ray_activate" ] || . "$tao_ray_activate"
[ -z "$tao_ray_hide_gpus" ] || export CUDA_VISIBLE_DEVICES=
. "$tao_ray_job/env"
rm -f "$tao_ray_job/env"
[ "$tao_ray_gpus" = - ] || export CUDA_VISIBLE_DEVICES="$tao_ray_gpus"
cd "$tao_ray_workspace" || exit
unset tao_ray_job tao_ray_workspace tao_ray_activate tao_ray_hide_gpus tao_ray_gpus tao_ray_name
"""

# Given: jobs, id. Whether the job was ever started, with no start in progress.
ATTACH = r"""
[ -d "$jobs" ] || exit 1
exec 9> "$jobs/.lock"
flock -w 60 9 || exit 2
[ -e "$jobs/$id/started" ]
"""

# Given: job, grace. First the durable intent, then the signal.
STOP = r"""
[ ! -e "$job/exit" ] || exit 0
if [ ! -e "$job/stop" ]; then
    echo $(($(date +%s) + grace)) > "$job/stop.$$"
    sync "$job/stop.$$"
    mv "$job/stop.$$" "$job/stop"
fi
read -r pid rest < "$job/started"
members "$job" "$pid"
[ -z "$found" ] || kill -s TERM $found 2>/dev/null || :
"""

# Given: job.
SETTLE = r"""
settle "$job"
"""

# Given: job. Kill all but the runner, which then reports.
KILL = r"""
read -r pid start at rest < "$job/started"
if alive "$pid" "$start" "$at"; then
    members "$job" "$pid"
    [ -z "$found" ] || kill -s KILL $found 2>/dev/null || :
fi
"""

# Given: jobs, id. Under the lock, so that no start of this job is half way.
RELEASE = r"""
[ -d "$jobs" ] || exit 0
exec 9> "$jobs/.lock"
flock -w 60 9 || exit 2
[ ! -d "$jobs/$id" ] || mv "$jobs/$id" "$jobs/.stage-$$"
exec 9>&-
rm -rf "$jobs/.stage-$$"
"""

# Given: jobs, workspace (a name). Ids of the jobs in it, one a line.
JOBS_IN = r"""
for job in "$jobs"/*/; do
    { read -r name < "$job/workspace"; } 2>/dev/null || continue
    job=${job%/}
    [ "$name" != "$workspace" ] || echo "${job##*/}"
done
"""

GPUS = r"""
if command -v nvidia-smi > /dev/null 2>&1; then
    nvidia-smi -L | grep -oE '^GPU [0-9]+' | grep -oE '[0-9]+'
else
    for device in /dev/nvidia[0-9]*; do
        [ ! -e "$device" ] || echo "${device#/dev/nvidia}"
    done
fi
"""

# Given: root, tools. One finding a line.
PREFLIGHT = r"""
for tool in $tools; do
    command -v "$tool" > /dev/null 2>&1 || echo "missing $tool"
done
setsid -f true 2>/dev/null || echo "missing setsid"
[ -r /proc/self/stat ] && [ -r /proc/self/environ ] || echo "proc"
mkdir -p "$root" && touch "$root/.write-test" && rm "$root/.write-test" || echo "root"
df -Pk "$root" | tail -n 1 | while read -r _ _ _ kib _; do echo "kib $kib"; done
"""
