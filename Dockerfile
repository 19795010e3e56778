# syntax=docker/dockerfile:1
# headrace in a container. Targets: `cpu` (default) and `cuda`.
#
#   docker build -t headrace .
#   docker build -t headrace:cuda --target cuda .
#   docker run --rm -p 8080:80 -v data:/data headrace --model-id ORG/NAME
#
# docs/container.md has the build arguments, the sizes and TGI's conventions.

ARG BUILDER_IMAGE=rust:1.95-slim-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

# --- everything that needs a compiler ------------------------------------------------------------------------
FROM ${BUILDER_IMAGE} AS builder
# Where torch comes from: a requirement and, if not the default registry, the address of another index.
ARG TORCH_REQUIREMENT=torch==2.11.0
ARG TORCH_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev python3 python3-venv python3-dev binutils \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Python packages first: they change less often than the sources.
COPY constraints.txt ./
RUN python3 -m venv /opt/headrace \
    && grep -v '^torch==' constraints.txt > /tmp/constraints.txt \
    && /opt/headrace/bin/pip install ${TORCH_INDEX_URL:+--index-url ${TORCH_INDEX_URL}} "${TORCH_REQUIREMENT}" \
    && /opt/headrace/bin/pip install -c /tmp/constraints.txt numpy safetensors grpcio protobuf huggingface_hub
COPY Cargo.toml Cargo.lock pyproject.toml README.md LICENSE ./
COPY deploy/build_backend.py deploy/build_backend.py
COPY router router
COPY launcher launcher
COPY kernels kernels
COPY proto proto
COPY server server
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install -c /tmp/constraints.txt maturin \
    && PATH="/opt/build/bin:${PATH}" /opt/build/bin/pip wheel --no-build-isolation --no-deps -w /tmp/wheel . \
    && /opt/headrace/bin/pip install --no-deps /tmp/wheel/headrace-*.whl \
    && strip /opt/headrace/bin/launcher /opt/headrace/bin/router /opt/headrace/bin/text-generation-launcher \
        /opt/headrace/bin/text-generation-server \
    && /opt/headrace/bin/pip uninstall -y pip setuptools wheel \
    && find /opt/headrace -name __pycache__ -prune -exec rm -rf {} + \
    && test -x /opt/headrace/bin/launcher \
    && rm -rf /src/target /root/.cargo/registry

# --- what runs -----------------------------------------------------------------------------------------------
FROM ${BASE_IMAGE} AS runtime
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-minimal libpython3-stdlib ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home --home-dir /home/headrace headrace \
    && mkdir /data && chown 1000:1000 /data
COPY --from=builder /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:${PATH} \
    HF_HOME=/data \
    HUGGINGFACE_HUB_CACHE=/data \
    PORT=80 \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /home/headrace
EXPOSE 80
HEALTHCHECK --interval=10s --timeout=3s --start-period=600s \
    CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['PORT'] + '/ready', timeout=2)"]
# Exec form: the launcher is PID 1 and gets the signals. `serve` as first argument is tolerated.
ENTRYPOINT ["launcher"]

FROM runtime AS cuda
# The registry's torch wheel brings CUDA's libraries; the container runtime brings the driver.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility DEVICE=cuda

FROM runtime AS cpu
ENV DEVICE=cpu
