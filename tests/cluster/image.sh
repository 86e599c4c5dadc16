#!/usr/bin/env bash
# image.sh: builds the static binaries and packs elastic-pool as the image that clusters load.
# Prints what it does, and as its last line the archive's path: target/image/elastic-pool.tar. Beside it is a link `bin` to the folder of the binaries,
# so that the load program comes from the same build.
#   ELASTIC_POOL_BINARY=FILE   pack this binary instead of building one
#   ELASTIC_POOL_PROFILE=dist  as the Dockerfile builds it: smaller and faster, and twice as long to build (default release, for tests)
#   ELASTIC_POOL_IMAGE=NAME    the image's name (default docker.io/elastic-pool/elastic-pool:dev)
# The same image comes from the Dockerfile where there is a container engine.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
NAME=${ELASTIC_POOL_IMAGE:-docker.io/elastic-pool/elastic-pool:dev}
# Asked of cargo, since its own settings may name another folder than the usual one.
TARGET=$(cd "$ROOT" && cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
LIMIT=25000000                                            # bytes: an image is pulled by every node that a worker comes to
# Only the gnu target comes with every toolchain; glibc can be linked statically, and resolves names with `files dns`.
TRIPLE=$(rustc -vV | sed -n 's/^host: //p')
PROFILE=${ELASTIC_POOL_PROFILE:-release}
binary=${ELASTIC_POOL_BINARY:-}
if [ -z "$binary" ]; then
  t=$SECONDS; echo "image: building the static binaries ..." >&2
  (cd "$ROOT" && RUSTFLAGS='-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs' cargo build --profile "$PROFILE" --locked --target "$TRIPLE" --bins >&2)
  binary=$TARGET/$TRIPLE/$PROFILE/elastic-pool
  echo "image: binaries done in $((SECONDS - t)) s" >&2
fi
! ldd "$binary" 2>/dev/null | grep -q '=>' || { echo "image: $binary is linked dynamically and would not start in an image without libraries" >&2; exit 1; }
mkdir -p "$TARGET/image"
python3 "$HERE/mkimage.py" "$NAME" "$TARGET/image/elastic-pool.tar.part" /usr/local/bin/elastic-pool "$binary=/usr/local/bin/elastic-pool"
mv "$TARGET/image/elastic-pool.tar.part" "$TARGET/image/elastic-pool.tar"
ln -sfn "$(cd "$(dirname "$binary")" && pwd)" "$TARGET/image/bin"
size=$(stat -c %s "$TARGET/image/elastic-pool.tar")
echo "image: $NAME, $size bytes" >&2
[ "$size" -lt $LIMIT ] || { echo "image: over the limit of $LIMIT bytes" >&2; exit 1; }
echo "$TARGET/image/elastic-pool.tar"
