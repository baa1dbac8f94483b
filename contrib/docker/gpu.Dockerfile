# syntax=docker/dockerfile:1
# distcore with every plugin, for NVIDIA GPUs: docker build -f contrib/docker/gpu.Dockerfile -t distcore:gpu .
# torch's own wheels bring CUDA and nccl, so the driver and the container toolkit of the host are all that is needed
# besides. Horovod is not built: that would take CUDA's compiler; the trainer ddp uses nccl.
FROM python:3.11-slim-bookworm AS built
# What core's compiled reader is made with; pinned apt versions would break with every Debian point release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
COPY core core
COPY toolkits toolkits
COPY src src
COPY pyproject.toml pyproject.toml
COPY README.md README.md
COPY plugins plugins
RUN python -m venv /opt/distcore \
    && /opt/distcore/bin/pip install --no-cache-dir --constraint constraints.txt ./core ./toolkits/* ./plugins/* . "ray[default]"

FROM python:3.11-slim-bookworm
# gcc: torch's compiled kernels; wget: KubeRay's probes; rsync: `ray up`.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev wget rsync \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 --shell /bin/bash ray
COPY --from=built /opt/distcore /opt/distcore
ENV PATH=/opt/distcore/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /home/ray
CMD ["distcore", "--help"]
