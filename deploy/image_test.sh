#!/usr/bin/env bash
# Builds the CPU container without a Docker daemon, asks it one question, and checks a clean stop.
# Needs root, Debian, and the packages buildah, debootstrap and crun. Not part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in buildah debootstrap; do
  command -v "$tool" >/dev/null || {
    echo "image-test: $tool is missing: apt-get install --no-install-recommends buildah debootstrap crun" >&2
    exit 1
  }
done
work=$(mktemp -d)
store=(--root "$work/store" --runroot "$work/run" --storage-driver vfs)
b() { buildah "${store[@]}" "$@"; }
cleanup() {
  # A test that failed half-way leaves no server behind.
  [ -z "${runner:-}" ] || pkill -TERM -u 1000 -x launcher || true
  b rm -a >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

echo "==> base: a Debian root that stands in for the images that FROM names"
debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" >"$work/debootstrap.log" 2>&1 ||
  { tail -5 "$work/debootstrap.log" >&2; exit 1; }
# A host behind an authority of its own needs it in the stand-in; the image under test is built on top and keeps
# what a real base would have.
cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/ca-certificates.crt"
[ -f /etc/pip.conf ] && cp /etc/pip.conf "$work/root/etc/pip.conf"
[ -d /etc/apt/sources.list.d ] && cp -a /etc/apt/sources.list "$work/root/etc/apt/" 2>/dev/null || true
base=$(b from scratch)
b add --quiet "$base" "$work/root" / >/dev/null
b commit --quiet "$base" stand-in-base >/dev/null
# The builder image has the Rust toolchain of this host, as rust:1.95 would have it.
toolchain=$(rustc --print sysroot)
b add --quiet "$base" "$toolchain" /usr/local/rust >/dev/null
b config --env PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$base"
b commit --quiet "$base" stand-in-rust >/dev/null
b rm "$base" >/dev/null

echo "==> build: target cpu"
b bud --isolation chroot --layers=false --target cpu --build-arg BASE_IMAGE=localhost/stand-in-base \
  --build-arg BUILDER_IMAGE=localhost/stand-in-rust -t headrace . >"$work/build.log" 2>&1 ||
  { tail -30 "$work/build.log" >&2; exit 1; }
echo "size: $(b images --format '{{.Name}} {{.Size}}' | grep 'headrace ' || true)"

echo "==> run: one question with the demo model under /data"
model=$(dirname "$(find "${MODEL_FOLDER:-.venv/lib}" -name 'SmolLM2-135M-Instruct*.gguf' | head -1)")
mkdir "$work/data"
cp "$model"/*.gguf "$work/data/"
chmod -R a+rX "$work/data"
port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
container=$(b from headrace)
b run --isolation chroot --user 1000:1000 -v "$work/data:/data:ro" "$container" -- \
  launcher serve --model-id "/data/$(basename "$work"/data/*.gguf)" --hostname 127.0.0.1 --port "$port" >"$work/run.log" 2>&1 &
runner=$!
for _ in $(seq 240); do
  curl -sf "http://127.0.0.1:$port/ready" >/dev/null && break
  kill -0 "$runner" 2>/dev/null || { tail -20 "$work/run.log" >&2; exit 1; }
  sleep 0.5
done
answer=$(curl -sf "http://127.0.0.1:$port/generate" -H 'Content-Type: application/json' \
  -d '{"inputs":"The capital of France is","parameters":{"max_new_tokens":8}}')
echo "answer: $answer"
case $answer in *Paris*) ;; *) echo "image-test: no Paris in the answer" >&2; exit 1 ;; esac
launcher_pid=$(pgrep -n -x -u 1000 launcher) || { echo "image-test: no launcher runs as uid 1000" >&2; exit 1; }
kill -TERM "$launcher_pid"
code=0
wait "$runner" || code=$?
[ "$code" = 0 ] || { echo "image-test: exit code $code after SIGTERM" >&2; tail -20 "$work/run.log" >&2; exit 1; }
if pgrep -u 1000 -f headrace.worker >/dev/null; then
  echo "image-test: a worker is left" >&2
  exit 1
fi
b run --isolation chroot "$container" -- sh -c '! command -v gcc && ! command -v cargo && text-generation-launcher --version'
echo "image-test: passed"
