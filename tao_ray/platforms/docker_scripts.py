"""The shell side of the Docker engine: what runs on the machine, and in the container.

A job's directory is that of the process engine (`process_scripts`), with these differences: what
runs in the container is ``run.sh``, which makes ``ran`` before anything else and writes
``ended`` (the command's exit status) at the end; ``started`` is written by the launcher when the
container runs (``begun`` is its draft); ``exit`` is written by whoever first sees that the
container has ended, from what the engine says.

The container's name is taken from the job's id and the root, so it can exist only once; and it
is started only while it has never run, under the root's lock.
"""

NO_DAEMON = 45  # exit code: the Docker Engine does not answer

# Given: docker (the command, maybe with sudo).
LIBRARY = r"""
dk() { $docker "$@"; }

# state NAME: sets `state` to the container's state, or to nothing if there is no such container.
state() {
    state=$(dk inspect --type container --format '{{.State.Status}}' "$1" 2>&1) && return
    case $state in *"No such"*) state= ;; *) echo "$state" >&2; exit 45 ;; esac
}

# confirm JOB NAME: write down that the job has started, if it has.
confirm() {
    [ -e "$1/begun" ] || return 0
    state "$2"
    case $state in '' | created) ;; *) mv "$1/begun" "$1/started" ;; esac
}
"""

# Prints the command that reaches the engine, or why there is none.
FIND = r"""
for docker in docker 'sudo -n docker'; do
    if said=$($docker version --format '{{.Server.Version}}' 2>&1); then
        echo "$docker"
        exit
    fi
    case $docker in docker) first=$said ;; esac
done
echo "$first"
exit 1
"""

# Between RECEIVE and CHOOSE of the process engine's start. Given more: docker, name, root.
COUNT = r"""
read -r boot < /proc/sys/kernel/random/boot_id
if [ -d "$job" ]; then
    confirm "$job" "$name"
    [ ! -e "$job/started" ] || { echo started; exit; }
    # A launcher died in between: what it made has never run.
    state "$name"
    [ -z "$state" ] || dk rm "$name" > /dev/null
fi
running=0 taken=,
listed=$(dk ps --filter label=tao-ray.job \
    --format '{{.Label "tao-ray.gpus"}} {{.Label "tao-ray.root"}}') || exit 45
while read -r used where; do
    [ "$where" != "$root" ] || running=$((running + 1))
    taken=$taken$used,
done <<FOUND
$listed
FOUND
"""

# After PLACE. Given more: image, shm, network, rootless, status; arguments: more of docker's.
RUN = r"""
size=0 inode=0
if [ -n "$status" ] && [ -f "$status" ]; then
    size=$(stat -L -c %s "$status")
    inode=$(stat -L -c %i "$status")
fi
echo "0 0 $boot $size $inode ${chosen:--}" > "$job/begun"
user=$(id -u):$(id -g)
if [ -n "$rootless" ]; then user=0:0; fi
if [ "${user%%:*}" != 0 ]; then
    # The image does not know this user, and much code asks for a name and a home.
    mkdir -p "$root/.home"
    set -- --env HOME="$root/.home" --env USER=tao --env LOGNAME=tao "$@"
fi
if [ -n "$chosen" ]; then
    set -- --gpus "\"device=$chosen\"" "$@"
else
    set -- --env NVIDIA_VISIBLE_DEVICES=void "$@"
fi
[ -z "$network" ] || set -- --network "$network" "$@"
dk create --name "$name" --label tao-ray.job="$id" --label tao-ray.root="$root" \
    --label tao-ray.gpus="${chosen:--}" --init --user "$user" --shm-size "$shm" \
    --volume "$root:$root" --workdir "$workspace" \
    "$@" "$image" sh "$job/run.sh" > /dev/null
dk start "$name" > /dev/null
mv "$job/begun" "$job/started"
echo started
"""

# In the container. Given: job.
RUNNER = r"""
mkdir "$job/ran" || exit 97  # only once, whoever starts this container again
exec >> "$job/log" 2>&1
trap : TERM INT HUP
sh "$job/command.sh"
code=$?
echo $code > "$job/ended.tmp"
mv "$job/ended.tmp" "$job/ended"
exit $code
"""

# In the container. Given, each with the prefix tao_ray_: job, workspace.
COMMAND_HEAD = r"""
trap 'exit $?' TERM
. "$tao_ray_job/env"
rm -f "$tao_ray_job/env"
cd "$tao_ray_workspace" || exit
unset tao_ray_job tao_ray_workspace
"""

# Given: docker, jobs, id, name. Whether the job was ever started, with no start in progress.
ATTACH = r"""
[ -d "$jobs" ] || exit 1
exec 9> "$jobs/.lock"
flock -w 60 9 || exit 2
confirm "$jobs/$id" "$name"
[ -e "$jobs/$id/started" ]
"""

# Given: docker, job, name, grace. First the durable intent, then the signal to all processes.
STOP = r"""
[ ! -e "$job/exit" ] || exit 0
if [ ! -e "$job/stop" ]; then
    echo $(($(date +%s) + grace)) > "$job/stop.$$"
    sync "$job/stop.$$"
    mv "$job/stop.$$" "$job/stop"
fi
dk exec "$name" sh -c 'kill -s TERM -- -1' > /dev/null 2>&1 || state "$name"
"""

# Given: docker, job, name.
KILL = r"""
dk kill "$name" > /dev/null 2>&1 || state "$name"
"""

# Given: docker, job, name. Writes the exit if the container has ended, from what the engine says.
SETTLE = r"""
[ ! -e "$job/exit" ] || exit 0
[ ! -e "$job/ended" ] || timeout 20 $docker wait "$name" > /dev/null 2>&1 || :
code=null oom=false detail= stopped=false
said=$(dk inspect --type container \
    --format '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}' "$name" 2>&1) ||
    case $said in
        *"No such"*) said= ;;
        *) echo "$said" >&2; exit 45 ;;
    esac
if [ -n "$said" ]; then
    read -r status code oom <<SAID
$said
SAID
    case $status in exited | dead | removing) ;; *) exit 0 ;; esac
    [ -e "$job/ran" ] || dk logs "$name" >> "$job/log" 2>&1 || :
elif [ -e "$job/ended" ]; then
    read -r code < "$job/ended"
else
    detail="the container was removed"
fi
[ ! -e "$job/stop" ] || stopped=true
[ -z "$detail" ] && [ "$oom" = true ] && detail="the container ran out of memory"
printf '{"code": %s, "stopped": %s, "oom": %s, "detail": "%s"}\n' \
    "$code" $stopped "$oom" "$detail" > "$job/exit.$$"
sync "$job/exit.$$"
ln "$job/exit.$$" "$job/exit" 2>/dev/null || :
rm -f "$job/exit.$$"
"""

# Given: docker, jobs, id, name. Under the lock, so that no start of this job is half way.
RELEASE = r"""
[ -d "$jobs" ] || exit 0
exec 9> "$jobs/.lock"
flock -w 60 9 || exit 2
if [ -d "$jobs/$id" ]; then
    state "$name"
    [ -z "$state" ] || dk rm --force "$name" > /dev/null || exit
    mv "$jobs/$id" "$jobs/.stage-$$"
fi
exec 9>&-
rm -rf "$jobs/.stage-$$"
"""

# Given: docker. What the engine can do, one finding a line.
PREFLIGHT = r"""
dk info --format 'server {{.ServerVersion}}
security {{.SecurityOptions}}
runtimes {{range $name, $_ := .Runtimes}}{{$name}} {{end}}'
for tool in nvidia-container-runtime-hook nvidia-container-runtime nvidia-ctk; do
    command -v $tool > /dev/null 2>&1 && echo "toolkit $tool"
done
:
"""

# --- images

# Given: docker, image.
PRESENT = 'dk image inspect "$image" > /dev/null 2>&1\n'

# Given: docker, image, place (of the log), registry, user. stdin: the registry's token, or
# nothing. Goes on by itself when the link breaks; one at a time, whoever asks. The token is in a
# shell variable, then in a private directory that is gone when this ends.
PULL = r"""
token=$(cat)
mkdir -p "$(dirname "$place")"
exec 9> "$place.lock"
flock -n 9 || exit 0
rm -f "$place.exit"
(
    trap 'rm -rf "$config"' EXIT
    trap 'exit 143' TERM INT HUP
    config=
    set --
    if [ -n "$token" ]; then
        config=$(mktemp -d) && chmod 700 "$config"
        set -- --config "$config"
        printf '%s' "$token" | dk "$@" login --username "$user" --password-stdin "$registry" ||
            { echo 46 > "$place.exit"; exit; }
        unset token
    fi
    # Says no at once where a pull says it after a while. Other failures are not its business:
    # it does not know plain-HTTP registries, for one.
    if ! said=$(dk "$@" manifest inspect "$image" 2>&1 > /dev/null); then
        echo "$said"
        case $said in
            *denied* | *nauthorized* | *orbidden* | *"manifest unknown"* | *"no such manifest"*)
                echo 47 > "$place.exit"
                exit ;;
        esac
    fi
    dk "$@" pull "$image"
    echo $? > "$place.exit"
) > "$place.log" 2>&1 < /dev/null &
"""

# Given: place. Whether a pull is at work (first word), its exit status or -, and its log's end.
PULLING = r"""
exec 9>> "$place.lock"
if flock -n 9; then state=idle; else state=busy; fi
code=-
[ ! -e "$place.exit" ] || read -r code < "$place.exit"
echo "$state $code $(grep -c 'Pulling fs layer' "$place.log" 2>/dev/null || :)" \
    "$(grep -cE 'Pull complete' "$place.log" 2>/dev/null || :)"
tail -n 20 "$place.log" 2>/dev/null || :
"""
