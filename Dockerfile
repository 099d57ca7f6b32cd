# Builds the kernel that is mounted at /kernelcode: docs/howto/container.md.
FROM debian:trixie-slim

# A compiler, git for the kernel's name, and what verifies Debian's archive.
# Debian keeps only the newest version of a package, so none is named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
      ca-certificates debian-archive-keyring g++ git gpgv python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN python3 -m venv /opt/kernel-builder \
    && /opt/kernel-builder/bin/pip install --no-cache-dir /src \
    && rm -rf /src \
    && mkdir -m 1777 /store /kernelcode

COPY container/entrypoint /usr/local/bin/entrypoint

ENV PATH=/opt/kernel-builder/bin:$PATH \
    KERNEL_BUILDER_CACHE=/store \
    MAX_JOBS=4 \
    CORES=4
VOLUME /store
WORKDIR /kernelcode
ENTRYPOINT ["/usr/local/bin/entrypoint"]
CMD ["build"]
