#!/bin/sh
# Records the README's first look as docs/images/first-look.svg, an animation that browsers play.
#
#     sh docs/record_terminal.sh
#
# The commands are those of the README, typed by this script. They run in a fresh clone in /tmp/ratchet with its own environment, so
# that the picture shows no other path of this machine. Needs uv, npm's npx and a network; about two minutes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1:-}" = play ]; then
    sed -n '/^ratchet doctor/,/^```/s/^\(ratchet [^#]*[^# ]\) *#.*/\1/p' README.md | while read -r command; do
        printf '\033[1;32m$\033[0m %s\n' "$command"
        sleep 1
        $command </dev/tty
        sleep 2
        echo
    done
    exit
fi
rm -rf /tmp/ratchet /tmp/probe
git clone --quiet "file://$root" /tmp/ratchet
cd /tmp/ratchet
make --silent setup
PATH="/tmp/ratchet/.venv/bin:$PATH" TERM=xterm-256color
export PATH TERM
uvx --quiet asciinema==2.4.0 rec --overwrite --quiet --cols 116 --rows 34 --idle-time-limit 2 \
    --command "sh $root/docs/record_terminal.sh play" first-look.cast
npx --yes svg-term-cli@2.1.1 --in first-look.cast --out "$root/docs/images/first-look.svg" --window --no-cursor
rm -rf /tmp/ratchet /tmp/probe
